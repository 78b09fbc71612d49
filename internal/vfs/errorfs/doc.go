// Package errorfs wraps a file system and makes its operations fail, fall short, flip bits or wait.
//
// What goes wrong is said by an Injector, a small value that prints itself, so that a failing test names the fault:
//
//	fsys := errorfs.Wrap(mem, errorfs.Nth(errorfs.Write, 3, syscall.EIO))           // the third write fails, once
//	fsys := errorfs.Wrap(mem, errorfs.From(errorfs.Sync, 1, syscall.EIO))           // every sync fails
//	fsys := errorfs.Wrap(mem, errorfs.OnPath("*.idx", errorfs.FlipBit(1, 77)))      // bit 77 of the first read of an index
//	fsys := errorfs.Wrap(mem, errorfs.ShortWrite(2, 512, syscall.ENOSPC))           // half a write, then a full disk
//	fsys := errorfs.Wrap(mem, errorfs.NoSpaceAfter(1<<20))                          // a full disk after 1 MiB
//	fsys := errorfs.Wrap(mem, errorfs.All(a, b))                                    // several at once
//
// Sweep runs a test with the fault at the first operation, the second, and so on until a run gets past it.
//
// An operation that fails has not reached the wrapped file system, except for the bytes of a short write. Injectors
// count for themselves, so one value serves one file system. An FS may be used by several goroutines at once; the nth
// operation is then the nth to arrive. The package starts no goroutine.
package errorfs
