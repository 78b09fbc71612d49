package bookie

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
	"github.com/binderylog/bindery/internal/metadata"
)

// stampVersion is the version of the directory format that this program writes. It covers everything below the directory:
// a change of any file's format that an older program must not meet raises it.
const stampVersion = 1

// stampMax bounds the FORMAT file.
const stampMax = 4096

// stampState says how far a directory belongs to its bookie.
type stampState string

const (
	stampReady   stampState = "ready"   // one of the directories in the incarnation record
	stampJoining stampState = "joining" // a new directory of a known bookie that the record does not hold yet
	stampLoss    stampState = "loss"    // stands in for something lost; ledgers are not in limbo yet
)

// stamp is the content of current/FORMAT: whose directory this is, and which start of it.
//
//	bindery directory format 1
//	bookie b1:3181
//	instance 3f0c9f1e-...
//	kinds journal,ledger
//	directory 6c1d...
//	incarnation 1 0b7a...
//	epoch 0000000012
//	state ready
//	crc32c 5f3a9c01
//
// The last line is the CRC32C of all bytes before it. The version is in the first line, so that every later program can
// tell it before it understands the rest.
type stamp struct {
	Bookie      ledger.BookieID
	Instance    string // of the cluster
	Kinds       string // sorted, comma-separated
	Directory   string // random id of this directory
	Number      uint64 // incarnation number of the bookie when the directory was stamped
	Incarnation string // and its id
	Epoch       uint64
	State       stampState
}

var stampTable = crc32.MakeTable(crc32.Castagnoli)

const stampHead = "bindery directory format "

// epochDigits pads the epoch, so that a start does not change the length of the file (see replaceFile). Fewer are read too.
const epochDigits = 10

// encode returns the bytes of the file.
func (s *stamp) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%d\nbookie %s\ninstance %s\nkinds %s\ndirectory %s\nincarnation %d %s\nepoch %0*d\nstate %s\n",
		stampHead, stampVersion, s.Bookie, s.Instance, s.Kinds, s.Directory, s.Number, s.Incarnation, epochDigits, s.Epoch, s.State)
	fmt.Fprintf(&b, "crc32c %08x\n", crc32.Checksum(b.Bytes(), stampTable))
	return b.Bytes()
}

// decodeStamp reads the file. A newer version is metadata.ErrFormatTooNew, anything else wrong a *corrupt.Error.
func decodeStamp(name string, b []byte) (*stamp, error) {
	bad := func(off int, format string, args ...any) error {
		return corrupt.Errorf(name, int64(off), "directory format", format, args...)
	}
	if len(b) > stampMax {
		return nil, bad(0, "%d bytes", len(b))
	}
	head, _, ok := strings.Cut(string(b), "\n")
	digits, isOurs := strings.CutPrefix(head, stampHead)
	v, err := strconv.ParseUint(digits, 10, 31)
	if !ok || !isOurs || err != nil {
		return nil, bad(0, "first line %.60q", head)
	}
	if v > stampVersion {
		return nil, fmt.Errorf("%s: directory format %d (this version reads %d): %w", name, v, stampVersion, metadata.ErrFormatTooNew)
	}
	i := bytes.LastIndex(b, []byte("\ncrc32c "))
	if i < 0 {
		return nil, bad(len(b), "no checksum")
	}
	if want := fmt.Sprintf("crc32c %08x\n", crc32.Checksum(b[:i+1], stampTable)); want != string(b[i+1:]) {
		return nil, bad(i+1, "checksum line %.20q does not match", b[i+1:])
	}
	lines := strings.Split(string(b[:i]), "\n")
	names := []string{"", "bookie ", "instance ", "kinds ", "directory ", "incarnation ", "epoch ", "state "}
	if v != stampVersion || len(lines) != len(names) {
		return nil, bad(0, "version %d with %d lines", v, len(lines))
	}
	vals := make([]string, len(names))
	for n, line := range lines[1:] {
		val, ok := strings.CutPrefix(line, names[n+1])
		if !ok || val == "" {
			return nil, bad(0, "line %d is %.60q", n+2, line)
		}
		vals[n+1] = val
	}
	s := &stamp{
		Bookie: ledger.BookieID(vals[1]), Instance: vals[2], Kinds: vals[3], Directory: vals[4], State: stampState(vals[7]),
	}
	number, inc, _ := strings.Cut(vals[5], " ")
	s.Incarnation = inc
	if s.Number, err = strconv.ParseUint(number, 10, 64); err != nil || s.Number < 1 || inc == "" {
		return nil, bad(0, "incarnation %.60q", vals[5])
	}
	if s.Epoch, err = strconv.ParseUint(vals[6], 10, 64); err != nil || s.Epoch < 1 || s.Epoch > math.MaxInt64 {
		return nil, bad(0, "epoch %.60q", vals[6])
	}
	if err := metadata.CheckBookieID(s.Bookie); err != nil {
		return nil, bad(0, "%v", err)
	}
	switch s.State {
	case stampReady, stampJoining, stampLoss:
		return s, nil
	}
	return nil, bad(0, "state %.60q", vals[7])
}

func newID() string { return uuid.NewString() }
