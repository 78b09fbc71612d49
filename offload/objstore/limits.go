package objstore

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// CheckKey says why a key may not be used, or nil. A key is segments parted by single slashes; no segment is empty, begins with a dot or is
// longer than SegmentMax; no control characters, no backslash. Offload's own names are much narrower; this bounds what a prefix may be.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("empty key")
	case len(key) > KeyMax:
		return fmt.Errorf("key of %d bytes; the limit is %d", len(key), KeyMax)
	case !utf8.ValidString(key):
		return fmt.Errorf("key %q is not UTF-8", key)
	}
	for _, r := range key {
		if r < ' ' || r == 0x7f || r == '\\' {
			return fmt.Errorf("key %q holds the character %q", key, r)
		}
	}
	for s := range strings.SplitSeq(key, "/") {
		switch {
		case s == "":
			return fmt.Errorf("key %q has an empty segment: no slash at either end, no two together", key)
		case s[0] == '.':
			return fmt.Errorf("key %q has a segment that begins with a dot", key)
		case len(s) > SegmentMax:
			return fmt.Errorf("key %q has a segment of %d bytes; the limit is %d", key, len(s), SegmentMax)
		}
	}
	return nil
}

// CheckPut says why an object may not be written, or nil: what every driver tests before it does anything.
func CheckPut(key string, body Body, meta map[string]string) error {
	if err := CheckKey(key); err != nil {
		return misuse(OpPut, key, err)
	}
	if len(body.Data) > BodyMax {
		return misuse(OpPut, key, fmt.Errorf("body of %d bytes; the limit is %d", len(body.Data), BodyMax))
	}
	if err := checkMeta(meta); err != nil {
		return misuse(OpPut, key, err)
	}
	return checkCRC(OpPut, key, body)
}

// CheckGet says why a range may not be read, or nil.
func CheckGet(key string, offset int64, dst []byte) error {
	if err := CheckKey(key); err != nil {
		return misuse(OpGet, key, err)
	}
	if offset < 0 || len(dst) == 0 || len(dst) > BodyMax || offset > 1<<62 {
		return misuse(OpGet, key, fmt.Errorf("range of %d bytes at %d; 1 to %d bytes at 0 or more can be asked for", len(dst), offset, BodyMax))
	}
	return nil
}

// CheckName says why op may not name this key, or nil.
func CheckName(op Op, key string) error {
	if err := CheckKey(key); err != nil {
		return misuse(op, key, err)
	}
	return nil
}

// CheckUpload says why an upload may not be opened, or nil.
func CheckUpload(key string, o UploadOptions) error {
	if err := CheckKey(key); err != nil {
		return misuse(OpCreate, key, err)
	}
	if err := checkMeta(o.Meta); err != nil {
		return misuse(OpCreate, key, err)
	}
	return nil
}

// CheckPart says why a part may not be sent, or nil.
func CheckPart(key, id string, number int, body Body) error {
	if err := checkUploadName(OpPart, key, id); err != nil {
		return err
	}
	if number < 1 || number > PartsMax {
		return misuse(OpPart, key, fmt.Errorf("part number %d; 1 to %d", number, PartsMax))
	}
	if len(body.Data) == 0 || len(body.Data) > BodyMax {
		return misuse(OpPart, key, fmt.Errorf("part of %d bytes; 1 to %d", len(body.Data), BodyMax))
	}
	return checkCRC(OpPart, key, body)
}

// CheckComplete says why an upload may not be completed from these parts, or nil.
func CheckComplete(key, id string, parts []Part) error {
	if err := checkUploadName(OpComplete, key, id); err != nil {
		return err
	}
	if len(parts) == 0 || len(parts) > PartsMax {
		return misuse(OpComplete, key, fmt.Errorf("%d parts; 1 to %d", len(parts), PartsMax))
	}
	last := 0
	for i, p := range parts {
		if p.Number <= last || p.Number > PartsMax {
			return misuse(OpComplete, key, fmt.Errorf("part %d after part %d; numbers ascend from 1 to %d", p.Number, last, PartsMax))
		}
		if i < len(parts)-1 && p.Size < PartMin {
			return misuse(OpComplete, key, fmt.Errorf("part %d of %d bytes; all but the last have at least %d", p.Number, p.Size, PartMin))
		}
		last = p.Number
	}
	return nil
}

// CheckAbort says why an upload may not be aborted, or nil.
func CheckAbort(key, id string) error { return checkUploadName(OpAbort, key, id) }

// CheckList bounds a listing: it returns the limit to use, or why there is none.
func CheckList(prefix string, limit int) (int, error) {
	if len(prefix) > KeyMax {
		return 0, misuse(OpList, prefix, fmt.Errorf("prefix of %d bytes; the limit is %d", len(prefix), KeyMax))
	}
	if limit <= 0 || limit > ListMax {
		limit = ListMax
	}
	return limit, nil
}

func checkUploadName(op Op, key, id string) error {
	if err := CheckKey(key); err != nil {
		return misuse(op, key, err)
	}
	if id == "" || len(id) > KeyMax {
		return misuse(op, key, fmt.Errorf("upload id of %d bytes; 1 to %d", len(id), KeyMax))
	}
	return nil
}

func checkCRC(op Op, key string, body Body) error {
	if got := CRC32C(body.Data); got != body.CRC32C {
		return &Error{Kind: KindChecksum, Op: op, Key: key,
			Err: fmt.Errorf("the body has CRC32C %08x, its sender computed %08x: it changed in memory", got, body.CRC32C)}
	}
	return nil
}

func checkMeta(meta map[string]string) error {
	size := 0
	for name, value := range meta {
		size += len(name) + len(value)
		for i := range len(name) {
			if c := name[i]; c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
				return fmt.Errorf("metadata name %q: lower-case letters, digits and '-'", name)
			}
		}
		for i := range len(value) {
			if value[i] < ' ' || value[i] > '~' {
				return fmt.Errorf("metadata %s: value %q is not printable ASCII", name, value)
			}
		}
		if name == "" || value != strings.TrimSpace(value) {
			return fmt.Errorf("metadata %q: an empty name or a value with space around it", name)
		}
	}
	if size > MetaMax {
		return fmt.Errorf("metadata of %d bytes; the limit is %d", size, MetaMax)
	}
	return nil
}

func misuse(op Op, key string, err error) error {
	return &Error{Kind: KindMisuse, Op: op, Key: key, Err: err}
}
