package vfs

import "unsafe"

// AlignedBytes returns n zeroed bytes of the Go heap whose first byte lies at a multiple of Align, as direct I/O wants
// them. Its capacity is n, so that appending can not leave the alignment behind.
func AlignedBytes(n int) []byte {
	if n == 0 {
		return nil
	}
	b := make([]byte, n+Align-1)
	skip := 0
	if r := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (Align - 1)); r != 0 {
		skip = Align - r
	}
	return b[skip : skip+n : skip+n]
}

// AllocOffHeap returns n zeroed bytes that the garbage collector neither scans nor counts: an anonymous mapping on
// Linux, aligned to Align; ordinary memory elsewhere. Pages cost nothing until they are written. The memory must go
// back through FreeOffHeap and must hold no Go pointers.
func AllocOffHeap(n int) ([]byte, error) {
	if n <= 0 {
		return nil, nil
	}
	return mapAnonymous(n)
}

// AllocHugePages is AllocOffHeap for memory that is written whole: in huge pages, where the kernel has some to give, it is
// there with a five-hundredth of the page faults.
func AllocHugePages(n int) ([]byte, error) {
	b, err := AllocOffHeap(n)
	if err == nil {
		adviseHugePages(b)
	}
	return b, err
}

// FreeOffHeap gives memory of AllocOffHeap or AllocHugePages back: b must start where their slice did. Every use of it afterwards
// faults. Freeing nil does nothing.
func FreeOffHeap(b []byte) error {
	if cap(b) == 0 {
		return nil
	}
	return unmap(b[:cap(b)])
}
