-- Call it first in a transaction of your own. It locks the fence until that transaction ends and returns how many
-- writes this token has made. Every other result is an exception, which a program cannot overlook:
-- ZF000 already applied, ZF001 stale, ZF002 spent, ZF003 other run, ZF004 other lineage, ZF005 unreadable.
CREATE OR REPLACE FUNCTION public.fencepost_check(
    resource text, store text, job text, token bigint, run text,
    mode text DEFAULT 'many', op text DEFAULT NULL, digest text DEFAULT NULL, host text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencepost$
DECLARE
    -- An item of work is named once=KEY.
    is_once boolean := fencepost_check.job LIKE 'once=%';
    whole_name text := CASE WHEN is_once THEN substr(fencepost_check.job, 6) ELSE fencepost_check.job END;
    job_name text := split_part(whole_name, '@', 1);
    job_host text := nullif(substr(whole_name, length(job_name) + 2), '');
    job_json jsonb := jsonb_strip_nulls(jsonb_build_object('name', job_name, 'host', job_host, 'once', nullif(is_once, false)));
    store_id text := lower(fencepost_check.store);
    run_id text := lower(fencepost_check.run);
    what text := coalesce(fencepost_check.digest,
        'sha256:' || encode(sha256(convert_to(coalesce(fencepost_check.op, ''), 'UTF8')), 'hex'));
    uuid_form constant text := '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$';
    stored text;
    seen jsonb;
    seen_token bigint;
    next_seq bigint := 1;
BEGIN
    -- What is written here must be readable everywhere else, so that nothing unsound is let in.
    IF fencepost_check.resource IS NULL OR fencepost_check.resource = ''
        OR store_id IS NULL OR store_id !~ uuid_form OR run_id IS NULL OR run_id !~ uuid_form
        OR fencepost_check.token IS NULL OR fencepost_check.token NOT BETWEEN 0 AND 9007199254740991
        OR fencepost_check.mode IS NULL OR fencepost_check.mode NOT IN ('many', 'once')
        OR job_name IS NULL OR job_name !~ '^[A-Za-z0-9_/:][A-Za-z0-9._/:-]*$' OR job_name LIKE '%..%'
        OR length(job_name) > 128 OR length(fencepost_check.job) > 160
        OR (is_once AND job_host IS NOT NULL)
        OR coalesce(job_host !~ '^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$', fencepost_check.job LIKE '%@%')
        OR what !~ '^sha256:'
    THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE =
            'fencepost_check: an argument makes no sense; pass FENCEPOST_STORE_ID, FENCEPOST_JOB, FENCEPOST_TOKEN and FENCEPOST_RUN as they are';
    END IF;

    -- The placeholder makes two first writers wait for each other.
    INSERT INTO public.fencepost_fences (resource) VALUES (fencepost_check.resource) ON CONFLICT DO NOTHING;
    SELECT f.fence INTO stored FROM public.fencepost_fences f WHERE f.resource = fencepost_check.resource FOR UPDATE;

    IF stored IS NOT NULL THEN
        BEGIN
            seen := stored::jsonb;
            seen_token := (seen->>'token')::bigint;
            next_seq := (seen->>'seq')::bigint + 1;
        EXCEPTION WHEN data_exception THEN
            seen := NULL;
        END;
        IF seen IS NULL OR jsonb_typeof(seen) <> 'object' OR (seen->>'v') IS DISTINCT FROM '1' OR seen_token IS NULL
            OR next_seq IS NULL OR next_seq < 2 OR (seen->>'store') IS NULL OR (seen->>'run') IS NULL
            OR (seen->'job'->>'name') IS NULL OR coalesce(seen->>'digest', '') NOT LIKE 'sha256:%'
        THEN
            RAISE EXCEPTION USING ERRCODE = 'ZF005', MESSAGE = format(
                'fencepost: the fence of %s cannot be read, so the last token is unknown', resource),
                HINT = 'Restore it together with the data; or, if no older run can still be alive, run fencepost publish sql --adopt once.';
        END IF;
        IF seen->>'store' <> store_id OR seen->'job' <> job_json THEN
            RAISE EXCEPTION USING ERRCODE = 'ZF004', MESSAGE = format(
                'fencepost: %s was last written by the job %s of store %s (token %s), whose tokens are not comparable with ours',
                resource, seen->'job'->>'name', seen->>'store', seen_token),
                HINT = 'If that is over, adopt it by hand: fencepost publish sql --adopt.';
        END IF;
        IF token < seen_token THEN
            RAISE EXCEPTION USING ERRCODE = 'ZF001', MESSAGE = format(
                'fencepost: token %s is stale: token %s of run %s on %s has written since',
                token, seen_token, seen->>'run', seen->>'host'),
                HINT = 'Roll back and stop: another run has taken over.';
        END IF;
        IF token = seen_token AND seen->>'run' <> run_id THEN
            RAISE EXCEPTION USING ERRCODE = 'ZF003', MESSAGE = format(
                'fencepost: token %s was used by another run, %s on %s, and a token belongs to one run',
                token, seen->>'run', seen->>'host');
        END IF;
        IF token = seen_token AND seen->>'digest' = what AND (seen->>'op') IS NOT DISTINCT FROM op
            AND (mode = 'once' OR op IS NOT NULL)
        THEN
            RAISE EXCEPTION USING ERRCODE = 'ZF000', MESSAGE = format(
                'fencepost: this write was applied before, under token %s', token),
                HINT = 'Roll back: there is nothing left to do.';
        END IF;
        IF mode = 'once' AND token <= seen_token THEN
            RAISE EXCEPTION USING ERRCODE = 'ZF002', MESSAGE = format(
                'fencepost: token %s has been used by run %s, and is good for one write', token, seen->>'run');
        END IF;
        IF token > seen_token THEN
            next_seq := 1;
        END IF;
    END IF;

    UPDATE public.fencepost_fences f
    SET fence = jsonb_strip_nulls(jsonb_build_object(
            'v', 1, 'store', store_id, 'job', job_json, 'token', token, 'seq', next_seq, 'run', run_id,
            'digest', what, 'op', op, 'at', floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
            'host', coalesce(host, host(inet_client_addr()), 'unknown')))::text,
        passed_xid = txid_current(), passed_at = now()
    WHERE f.resource = fencepost_check.resource;
    RETURN next_seq;
END
$fencepost$;

-- A write to a protected table passes only in a transaction that has advanced the fence.
CREATE OR REPLACE FUNCTION public.fencepost_guard() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencepost$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM public.fencepost_fences f
        WHERE f.resource = TG_ARGV[0] AND f.passed_xid = txid_current() AND f.passed_at = now()
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'ZF006', MESSAGE = format(
            'fencepost: %I.%I is protected, and this transaction has not passed the fence %s',
            TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_ARGV[0]),
            HINT = 'Call public.fencepost_check(...) first in the same transaction, or write by fencepost publish sql.';
    END IF;
    RETURN NULL;
END
$fencepost$;

REVOKE ALL ON FUNCTION public.fencepost_check(text, text, text, bigint, text, text, text, text, text) FROM PUBLIC;
