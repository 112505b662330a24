"""The asyncio edges: clocks, tasks, bounded queues, threads and child processes."""
