DROP FUNCTION IF EXISTS public.fencepost_guard() CASCADE;
DROP FUNCTION IF EXISTS public.fencepost_check(text, text, text, bigint, text, text, text, text, text);
