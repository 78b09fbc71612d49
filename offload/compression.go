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

// ParseEncryption reads "none" or "aes-256-gcm".
func ParseEncryption(s string) (Encryption, error) {
	switch s {
	case "none":
		return EncryptNone, nil
	case keyAlgorithm:
		return EncryptAESGCM, nil
	}
	return 0, fmt.Errorf("encryption %q: none or %s", s, keyAlgorithm)
}
