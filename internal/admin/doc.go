// Package admin is the HTTP server of operators, probes and scrapers.
//
// It serves the paths of BookKeeper's admin API that deployments depend on (/heartbeat, /metrics, /api/v1/...) with
// their bodies and odd status codes, and a typed API of its own (/api/v2/...) with problem bodies (RFC 9457) and proper
// status codes. It knows nothing of bookies: everything it shows is handed in as a small interface, and a view that is
// absent answers 404.
//
// The server is opened before anything else of a process and closed after it, so that probes and scrapers see a start
// and a stop; views therefore have to answer in every phase.
//
// Several bookies of one process are served under /bookies/1/, /bookies/2/ ...; the paths of the first are also at the
// root.
//
// Security: reading is open to whoever reaches the port. Calls that change something need the bearer token; without a
// token they are admitted from the loopback interface only, and then not from a web page (no Origin, a loopback Host).
// Profiles are under the same rule. Each changing call is logged with its caller.
//
// Goroutines: one accept loop and net/http's one per connection; Close ends them. Limits: 64 KiB of request header,
// 1 MiB of request body, 10 s to send a request.
package admin
