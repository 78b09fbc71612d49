package metadata

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one field of a message in protobuf's binary form, as it stands there. Slices alias the message.
type field struct {
	num    protowire.Number
	typ    protowire.Type
	varint uint64 // VarintType
	bytes  []byte // BytesType
	raw    []byte // tag and value
}

// eachField calls fn for each field of a message. Groups, which no message of ours has, are passed whole as raw.
func eachField(b []byte, fn func(field) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("field tag: %w", protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return fmt.Errorf("value of field %d: %w", num, protowire.ParseError(m))
		}
		f := field{num: num, typ: typ, raw: b[:n+m]}
		switch typ {
		case protowire.VarintType:
			f.varint, _ = protowire.ConsumeVarint(b[n:])
		case protowire.BytesType:
			f.bytes, _ = protowire.ConsumeBytes(b[n:])
		}
		if err := fn(f); err != nil {
			return err
		}
		b = b[n+m:]
	}
	return nil
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

// appendInt writes an int32, int64 or enum field. Negative numbers take ten bytes, as protobuf has it.
func appendInt(b []byte, num protowire.Number, v int64) []byte {
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}
