// Package metrics counts what the server does and serves it to Prometheus.
//
// It wraps a [process.Manager]: give the wrapped one to the faces, and it counts every
// start and every reader; no other package needs to know Prometheus. Values that the
// manager knows anyway (processes, bytes) are read at each scrape, and cost nothing in
// between.
//
//	tend_build_info{version}                 1
//	tend_start_seconds                       histogram: a call of Start that succeeded
//	tend_start_errors_total{reason}          starts that failed
//	tend_processes{state}                    known processes: running, stopped, exited
//	tend_output_bytes_total{stream}          written by processes
//	tend_input_bytes_total                   taken from writers
//	tend_spool_bytes{stream}                 kept and readable now
//	tend_readers                             open readers
//	tend_reader_lag_bytes                    of the reader that is furthest behind
//	tend_role_up{role}                       1 if the role has a process
//	tend_role_restarts_total{role}           times a role was started again
//	tend_http_requests_total{face}           requests, by the part of the server that serves their path
//	tend_http_requests_active{face}          requests being served, streams included
//	tend_http_refused_total{reason}          requests refused: connections, requests, token, reader, peer, origin; route if no part serves the path, or not by this method
//	tend_http_panics_total                   requests that a bug ended
//
// The byte counters add the increase since the previous scrape. They miss bytes that a
// process wrote between the last scrape and its removal.
package metrics
