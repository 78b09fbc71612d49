// Package memfs is a file system in memory that can lose power.
//
// It keeps two states: what programs see, and what a disk would hold after a power loss. The second follows the first
// only where the program asked for it, and no further:
//
//   - file data and size: at File.Sync, at WriteAt of a file opened with DSync, at WriteAtDSync;
//   - names: at SyncDir of the directory that holds them. Syncing a file does not make its name durable, and syncing a
//     directory does not make the directory's own name durable. MkdirAll is no exception; New makes durable directories.
//
// CrashClone returns a new file system as a power loss would leave this one: everything durable, and of the rest a
// share chosen by seed. Data is torn within a write at 512 or 4,096 bytes; sizes may lie between the old and the new
// one; a range whose size was kept and whose data was lost reads as zeros. Directory operations are lost or kept one by
// one, but an operation is kept only if the earlier ones on the same names were; a rename is kept or lost whole.
// Where a page was written several times since the last sync, the disk holds the oldest or the newest bytes of each
// sector, never those in between.
//
// CrashNow makes every later call on the file system and its open files fail with ErrCrashed, so that a process that is
// "dead" can not write. CrashAt does so in the middle of the nth operation that changes anything: that operation's
// effect is seen by CrashClone as not yet synced. Sweep runs a test for every such n.
//
// Direct I/O checks the alignment of memory, offset and length. SetCapacity bounds the space; writing beyond it is
// short and fails with ENOSPC, as on a real disk, and Preallocate fails whole. Space of a removed file is free once its
// last handle is closed.
//
// An FS may be used by several goroutines at once. The package starts none. Data is shared between clones and copied
// when written, so a clone costs little.
package memfs
