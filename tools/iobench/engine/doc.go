// Package engine runs operations on a disk and keeps what they took.
//
// A Load is a number of workers that each do one operation after the other, in a closed loop or at intended times. What
// they took goes into a Probe: histograms of the whole operation and of its write and sync parts, the rounds, a time line,
// the gaps between completions. Probes that are to be compared run in interleaved rounds, so that a change of the machine
// hits all of them, and Compare ranks them only beyond the spread of the rounds.
//
// Invariants:
//   - In an open loop latency counts from the time at which an operation should have begun, however late that was. An
//     operation whose worker was free and waiting counts from its own start: how exactly the kernel wakes it is no
//     property of the disk.
//   - Every operation that was due is counted. What could not be started until the load gave up counts with the time
//     that it had waited by then.
//   - A write goes to other bytes than the one before, with other content: no block is written twice with the same.
//   - A test file has no name: it is unlinked as soon as it is open, so nothing stays behind however the process ends.
//   - The first error of a disk ends the load. It is a *DiskError, never a sample.
//   - No more is written than the Meter allows.
//
// Goroutines: one per worker, joined before Run returns. Several Runs may use an Env at once, each its own probe and
// workers.
package engine
