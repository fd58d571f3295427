"""Our queue beside pgqueuer and procrastinate: no-op jobs on one durable PostgreSQL, one worker process each."""
