// Package overload drives one real bookie with more than it can take, for as long as it is told, beside clients that are
// stuck, slow, or stop in the middle of a frame, and holds it to its memory budget.
//
// `make overload DURATION=10m` runs it; without the build tag `overload` the package is empty.
package overload
