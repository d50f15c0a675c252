CREATE TABLE IF NOT EXISTS public.fencepost_fences (
    resource text PRIMARY KEY,
    fence text,
    passed_xid bigint,
    passed_at timestamptz
);
