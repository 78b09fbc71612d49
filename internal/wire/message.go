package wire

import "google.golang.org/protobuf/encoding/protowire"

// headerTag is the first byte of every V3 packet: field 1 (header), length-delimited.
const headerTag = 0x0A

// fields walks the fields of one protobuf message. A field whose wire type is not the expected one is treated as an
// unknown field by its caller, which leaves a required field missing.
type fields struct {
	rest []byte
	num  protowire.Number
	typ  protowire.Type
	u    uint64 // value of a varint field
	b    []byte // value of a length-delimited field
	bad  bool
}

// next moves to the next field; false at the end and at the first malformed byte, which sets bad.
func (f *fields) next() bool {
	if len(f.rest) == 0 || f.bad {
		return false
	}
	num, typ, n := protowire.ConsumeTag(f.rest)
	if n < 0 {
		f.bad = true
		return false
	}
	f.num, f.typ, f.rest = num, typ, f.rest[n:]
	switch typ {
	case protowire.VarintType:
		f.u, n = protowire.ConsumeVarint(f.rest)
	case protowire.BytesType:
		f.b, n = protowire.ConsumeBytes(f.rest)
	default:
		n = protowire.ConsumeFieldValue(num, typ, f.rest)
	}
	if n < 0 {
		f.bad = true
		return false
	}
	f.rest = f.rest[n:]
	return true
}

// varint and bytes report whether the current field is field num of that wire type.
func (f *fields) varint(num protowire.Number) bool {
	return f.num == num && f.typ == protowire.VarintType
}

func (f *fields) bytes(num protowire.Number) bool {
	return f.num == num && f.typ == protowire.BytesType
}

// i64 returns the varint as an int64, which is two's complement in 64 bits on the wire.
func (f *fields) i64() int64 { return int64(f.u) } //nolint:gosec // see above

// i32 returns the varint as an int32; protobuf cuts to the low 32 bits.
func (f *fields) i32() int32 { return int32(f.u) } //nolint:gosec // see above

// auth is an AuthMessage.
type auth struct{ plugin, payload []byte }

func decodeAuth(b []byte) (auth, error) {
	var a auth
	hasPlugin, hasPayload := false, false
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.bytes(1):
			a.plugin, hasPlugin = f.b, true
		case f.bytes(2):
			a.payload, hasPayload = f.b, true
		}
	}
	switch {
	case f.bad:
		return a, malformed("AuthMessage", "broken protobuf")
	case !hasPlugin || !hasPayload:
		return a, malformed("AuthMessage", "required field missing")
	}
	return a, nil
}

func appendAuth(dst []byte, plugin string, payload []byte) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendString(dst, plugin)
	return appendBytes(dst, 2, payload)
}

func sizeAuth(plugin string, payload []byte) int {
	return 1 + protowire.SizeBytes(len(plugin)) + sizeBytes(2, payload)
}

// The append and size functions below write one field, tag included.

func appendVarint(dst []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), v)
}

func sizeVarint(num protowire.Number, v uint64) int {
	return protowire.SizeTag(num) + protowire.SizeVarint(v)
}

func appendI64(dst []byte, num protowire.Number, v int64) []byte {
	return appendVarint(dst, num, uint64(v)) //nolint:gosec // ten-byte varint for negative numbers, as protobuf has it
}

func sizeI64(num protowire.Number, v int64) int {
	return sizeVarint(num, uint64(v)) //nolint:gosec // as above
}

func appendBytes(dst []byte, num protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), b)
}

func sizeBytes(num protowire.Number, b []byte) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(len(b))
}

// appendMessageHead starts a sub-message of the given size.
func appendMessageHead(dst []byte, num protowire.Number, size int) []byte {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size)) //nolint:gosec // size is never negative
}
