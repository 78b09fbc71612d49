//go:build !unix

package vfs

const openNonblock = 0
