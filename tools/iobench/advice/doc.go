// Package advice turns figures into settings, grades and predictions, each with the evidence for it.
//
// Rules of it:
//   - No method is recommended for a lead inside the spread of the rounds.
//   - What has no figure gives no setting.
//   - A prediction is a run, in simulated time, of the rules by which the journal commits groups, over the measured
//     distribution of what writing a group takes. It names what it was limited by.
//
// Everything here is arithmetic: no file, no clock, no goroutine.
package advice
