// Package loadgen drives bookies with a chosen load and measures what came of it.
//
// A load is either open (a rate: adds are due at fixed times, whatever the target does, and latency counts from the
// time an add was due) or closed (a window: a new add starts when an earlier one is answered, and latency counts from
// the moment the window lets it through). Mixing the two up is how a benchmark flatters a system that stalls.
//
// Two drivers share plans, histograms and reports: Raw speaks V2 frames to one bookie over a number of connections,
// with no metadata and no replication, so that another implementation can be measured with the very same client;
// Cluster writes replicated ledgers through the ledger client.
//
// Invariants:
//   - Every add sent is counted exactly once: answered, refused (by code) or unanswered at the end.
//   - Adds of the warm-up are sent and counted apart; they enter no histogram.
//   - Histograms are merged, percentiles are never averaged.
//
// Goroutines: per connection of Raw a sender and a receiver, per ledger of Cluster a sender; all end before Run returns.
// Limits: latencies from 1 us to 5 min with three significant digits; 4,096 connections; 1,000,000 ledgers.
package loadgen
