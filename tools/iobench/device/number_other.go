//go:build !linux

package device

import "os"

func fileNumber(os.FileInfo) string   { return "" }
func deviceNumber(os.FileInfo) string { return "" }
func fileBlock(os.FileInfo) int       { return 0 }
