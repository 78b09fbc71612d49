package offload

import "fmt"

// compressionNames are the words of settings.
var compressionNames = map[string]Compression{"none": CompressNone, "zstd": CompressZstd, "auto": CompressAuto}

// ParseCompression reads "none", "zstd" or "auto".
func ParseCompression(s string) (Compression, error) {
	c, ok := compressionNames[s]
	if !ok {
		return 0, fmt.Errorf("compression %q: none, zstd or auto", s)
	}
	return c, nil
}
