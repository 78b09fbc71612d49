// Package compare puts runs of iobench side by side: two runs of one disk, the disks of a fleet, one disk over the years.
//
// Runs are grouped (by nothing, by model, by host, or by disk over time), and each figure that two runs of a group have in
// common is held against the group's base: its first run, or the median where the runs are equals.
//
// Invariants:
//   - Only like is compared with like: the same chapter, role, cell and metric. What differs between the machines is listed.
//   - A difference has a direction only if the rounds bear it out. Between two runs that is an exact rank test of their rounds
//     (two-sided, 1 %); against a median none of the run's rounds may reach it. Below a tenth it is no difference at all:
//     so much lies between two runs of one idle disk.
//   - An outlier lies more than 3 median absolute deviations (scaled to a standard deviation) and a tenth from the median of at
//     least five runs.
//   - Percentiles are taken as they are or from merged histograms; none is averaged.
//
// The rank test knows the noise inside two runs, not that between two days: for that there are more runs.
//
// The package starts no goroutine.
package compare
