package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrShort is returned by Frame and FrameSize when the buffer does not hold the whole frame yet.
var ErrShort = errors.New("frame is not complete yet")

// FrameTooLongError is returned for a frame beyond the limit. The connection can not go on: where the next frame begins is
// unknown. It carries the first bytes of the frame, since most such frames are no frames at all (see Guess).
type FrameTooLongError struct {
	Size  int64 // whole frame, length field included
	Limit int
	Head  []byte // at most 16 bytes, a copy
}

// Error implements error.
func (e *FrameTooLongError) Error() string {
	s := fmt.Sprintf("frame of %d bytes is over the limit of %d", e.Size, e.Limit)
	if g := Guess(e.Head); g != "" {
		s += "; this looks like " + g
	}
	return s
}

// FormatError is returned for a packet that can not be decoded. The connection should be closed.
type FormatError struct {
	What string // the packet or message that was expected
	Why  string
}

// Error implements error.
func (e *FormatError) Error() string { return "malformed " + e.What + ": " + e.Why }

func malformed(what, why string) error { return &FormatError{What: what, Why: why} }

// FrameSize returns the size of the frame at the start of buf, length field included, as soon as its length can be read.
func FrameSize(buf []byte, limit int) (int, error) {
	if len(buf) < LengthSize {
		return 0, ErrShort
	}
	// Compared in 64 bits: the length is unsigned, and FFFFFFFF is too long, not negative.
	size := int64(binary.BigEndian.Uint32(buf)) + LengthSize
	if size > int64(limit) {
		return 0, &FrameTooLongError{Size: size, Limit: limit, Head: bytes.Clone(buf[:min(len(buf), 16)])}
	}
	return int(size), nil
}

// Frame splits the first frame off buf: packet is its content without the length, rest what follows it. It fails with
// ErrShort if buf does not hold the whole frame, and with *FrameTooLongError if the frame, length included, is over limit.
func Frame(buf []byte, limit int) (packet, rest []byte, err error) {
	size, err := FrameSize(buf, limit)
	if err != nil {
		return nil, buf, err
	}
	if len(buf) < size {
		return nil, buf, ErrShort
	}
	return buf[LengthSize:size:size], buf[size:], nil
}

// Guess names what a peer that does not speak this protocol probably speaks, from its first bytes; "" = no idea.
func Guess(head []byte) string {
	if len(head) >= 3 && head[0] == 0x16 && head[1] == 3 && head[2] <= 4 {
		return "a TLS handshake; TLS starts in-band with START_TLS on this port"
	}
	for _, verb := range []string{"GET ", "POST", "PUT ", "HEAD", "DELE", "OPTI", "CONN", "PATC", "PRI "} {
		if bytes.HasPrefix(head, []byte(verb)) {
			return "HTTP; the admin address is another one"
		}
	}
	if bytes.HasPrefix(head, []byte("SSH-")) {
		return "SSH"
	}
	return ""
}

// openFrame appends room for a length and returns the new buffer; closeFrame fills it in.
func openFrame(dst []byte) []byte { return append(dst, 0, 0, 0, 0) }

// closeFrame writes the length of the frame that began at start.
func closeFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-LengthSize)) //nolint:gosec // a frame is far below 4 GiB
	return dst
}
