package dir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/offload/objstore"
)

// The end of every file that holds an object or a part, all integers big-endian:
//
//	body | metadata: name TAB value LF, sorted by name | footer
//	                                                     | body length (8) | modified, ms (8) | metadata length (4)
//	                                                     | CRC32C of the body (4) | CRC32C of metadata and the 24 bytes before (4) | "BKOF" (4)
const (
	footerSize  = 32
	footerMagic = "BKOF"
	metaMax     = 2*objstore.MetaMax + objstore.KeyMax // tabs, line ends, and the key of an upload
)

var (
	errForeign = errors.New("not a file of ours")
	errFolder  = errors.New("a folder")
)

type footer struct {
	size     int64 // of the body
	crc      uint32
	modified int64 // ms
	meta     map[string]string
}

// encode returns metadata and footer: what follows the body.
func (f *footer) encode() []byte {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(f.meta)) {
		b = append(append(append(append(b, name...), '\t'), f.meta[name]...), '\n')
	}
	n := len(b)
	b = binary.BigEndian.AppendUint64(b, uint64(f.size))
	b = binary.BigEndian.AppendUint64(b, uint64(f.modified))
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	b = binary.BigEndian.AppendUint32(b, f.crc)
	b = binary.BigEndian.AppendUint32(b, objstore.CRC32C(b))
	return append(b, footerMagic...)
}

// decodeFooter reads a file's footer from its last bytes; at least footerSize of them, and all of a file shorter than footerSize+metaMax.
func decodeFooter(tail []byte, fileSize int64) (footer, error) {
	if len(tail) < footerSize || string(tail[len(tail)-4:]) != footerMagic {
		return footer{}, errForeign
	}
	end := tail[len(tail)-footerSize:]
	f := footer{size: int64(binary.BigEndian.Uint64(end)), modified: int64(binary.BigEndian.Uint64(end[8:])), crc: binary.BigEndian.Uint32(end[20:])}
	n := int64(binary.BigEndian.Uint32(end[16:]))
	if n > metaMax || f.size < 0 || f.size != fileSize-n-footerSize || n > int64(len(tail)-footerSize) {
		return footer{}, fmt.Errorf("%w: a body of %d and metadata of %d bytes in a file of %d", errForeign, f.size, n, fileSize)
	}
	covered := tail[int64(len(tail))-footerSize-n : len(tail)-8]
	if got, want := objstore.CRC32C(covered), binary.BigEndian.Uint32(end[24:]); got != want {
		return footer{}, fmt.Errorf("%w: its CRC32C is %08x, not %08x", errForeign, got, want)
	}
	for line := range strings.SplitAfterSeq(string(covered[:n]), "\n") {
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || !strings.HasSuffix(line, "\n") {
			return footer{}, fmt.Errorf("%w: metadata line %q", errForeign, line)
		}
		if f.meta == nil {
			f.meta = map[string]string{}
		}
		f.meta[name] = value
	}
	return f, nil
}

// Body returns the object that a file of a folder holds; data that is no such file comes back as it is.
func Body(data []byte) []byte {
	f, err := decodeFooter(data, int64(len(data)))
	if err != nil {
		return data
	}
	return data[:f.size]
}

// openFooter opens a file that ends in a footer.
func openFooter(fsys vfs.FS, path string) (vfs.File, footer, error) {
	in, err := fsys.Stat(path)
	if err != nil {
		return nil, footer{}, err
	}
	if in.Dir {
		return nil, footer{}, errFolder
	}
	if in.Special {
		return nil, footer{}, fmt.Errorf("%w: %s is a pipe, a device or a socket", errForeign, path)
	}
	f, err := fsys.Open(path, vfs.Mode{})
	if err != nil {
		return nil, footer{}, err
	}
	foot, err := readFooter(f)
	if err != nil {
		f.Close()
		return nil, footer{}, err
	}
	return f, foot, nil
}

func readFooter(f vfs.File) (footer, error) {
	size, err := f.Size()
	if err != nil {
		return footer{}, err
	}
	tail := make([]byte, min(size, 512)) // metadata is seldom longer
	for {
		if n, err := f.ReadAt(tail, size-int64(len(tail))); n < len(tail) {
			return footer{}, fmt.Errorf("read %d of %d bytes: %w", n, len(tail), err)
		}
		foot, err := decodeFooter(tail, size)
		if err == nil || len(tail) < 512 || int64(len(tail)) == min(size, footerSize+metaMax) {
			if err != nil {
				err = corrupt.New(f.Name(), max(0, size-footerSize), "object footer", err)
			}
			return foot, err
		}
		tail = make([]byte, min(size, footerSize+metaMax))
	}
}

func (f *footer) info(key string) objstore.Info {
	return objstore.Info{
		Key: key, Size: f.size, CRC32C: f.crc, HasCRC32C: true, ETag: fmt.Sprintf("%08x-%x", f.crc, f.size),
		Modified: time.UnixMilli(f.modified), Meta: f.meta,
	}
}
