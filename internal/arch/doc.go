// Package arch holds the rules of this repository that the compiler does not check: which package may import which,
// what a file has to carry, and how long it may be. It has no code of its own, only tests.
//
// A package imports only packages of lower layers. Packages of one layer never import each other, so a layer can be
// read, tested and replaced alone. The layers and the edges that are forbidden for a reason of their own stand in
// layers_test.go; docs/ARCHITECTURE.md explains them.
package arch
