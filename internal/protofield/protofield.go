// Package protofield walks over the fields of a protobuf message as they stand there. It serves records whose unknown fields
// have to survive a change by an older program, whose bytes are fixed by others, or whose errors have to name the field.
//
// It holds no state and copies nothing: what a Field has is part of the message.
package protofield

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is one field of a message. Slices alias the message.
type Field struct {
	Num    protowire.Number
	Type   protowire.Type
	Varint uint64 // of VarintType
	Bytes  []byte // of BytesType
	Raw    []byte // tag and value
}

// Is reports whether the field has a number and holds a varint.
func (f Field) Is(num protowire.Number) bool { return f.Num == num && f.Type == protowire.VarintType }

// IsBytes reports whether the field has a number and holds bytes, a string or a message.
func (f Field) IsBytes(num protowire.Number) bool {
	return f.Num == num && f.Type == protowire.BytesType
}

// Int64 is the varint as a signed number.
func (f Field) Int64() int64 { return int64(f.Varint) } //nolint:gosec // two's complement in 64 bits, as protobuf has it

// AtMost is the varint, or limit if it is larger.
func (f Field) AtMost(limit uint64) uint64 { return min(f.Varint, limit) }

// Each calls fn for each field of a message until one fails. Groups are passed whole as Raw.
func Each(message []byte, fn func(Field) error) error {
	for b := message; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("field tag: %w", protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return fmt.Errorf("value of field %d: %w", num, protowire.ParseError(m))
		}
		f := Field{Num: num, Type: typ, Raw: b[:n+m]}
		switch typ {
		case protowire.VarintType:
			f.Varint, _ = protowire.ConsumeVarint(b[n:])
		case protowire.BytesType:
			f.Bytes, _ = protowire.ConsumeBytes(b[n:])
		}
		if err := fn(f); err != nil {
			return err
		}
		b = b[n+m:]
	}
	return nil
}
