package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/binderylog/bindery/internal/corrupt"
)

// cookieVersion is the layout version of the cookies that are written. From 4 on the body is protobuf text.
const (
	cookieVersion     = 5
	cookieVersionText = 4
	cookieVersionMin  = 3 // below it, Java itself refuses
)

// Cookie is a bookie's identity as its directories and the metadata store hold it: Java's file, byte for byte.
type Cookie struct {
	Version     int
	BookieHost  string   // the bookie id
	JournalDirs []string // as configured
	LedgerDirs  []string
	InstanceID  string   // "" in very old cookies
	IndexDirs   []string // nil if none were configured
}

// ErrCookieTooOld is returned for a cookie of a layout that Java no longer accepts either.
var ErrCookieTooOld = errors.New("cookie layout is older than version 3")

// EncodeCookie returns the stored form, always in the newest layout: an old cookie's own form cannot hold its fields.
func EncodeCookie(c Cookie) ([]byte, error) {
	for _, d := range slices.Concat(c.JournalDirs, c.LedgerDirs, c.IndexDirs) {
		if d == "" || strings.ContainsAny(d, "\t\n") {
			return nil, fmt.Errorf("cookie: directory %q", d)
		}
	}
	for _, d := range c.JournalDirs {
		if strings.Contains(d, ",") {
			return nil, fmt.Errorf("cookie: journal directory %q contains a comma", d)
		}
	}
	if c.BookieHost == "" || len(c.JournalDirs) == 0 || len(c.LedgerDirs) == 0 {
		return nil, errors.New("cookie: bookie id, journal and ledger directories are required")
	}
	b := append(strconv.AppendInt(nil, cookieVersion, 10), '\n')
	b = appendTextString(b, "", "bookieHost", []byte(c.BookieHost))
	b = appendTextString(b, "", "journalDir", []byte(strings.Join(c.JournalDirs, ",")))
	b = appendTextString(b, "", "ledgerDirs", []byte(joinDirs(c.LedgerDirs)))
	if c.InstanceID != "" {
		b = appendTextString(b, "", "instanceId", []byte(c.InstanceID))
	}
	if len(c.IndexDirs) > 0 {
		b = appendTextString(b, "", "indexDirs", []byte(joinDirs(c.IndexDirs)))
	}
	return b, nil
}

// joinDirs writes a list of directories: their count, then each after a tab.
func joinDirs(dirs []string) string {
	return strconv.Itoa(len(dirs)) + "\t" + strings.Join(dirs, "\t")
}

func splitDirs(s string) ([]string, error) {
	count, rest, ok := strings.Cut(s, "\t")
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || !ok {
		return nil, fmt.Errorf("%.80q is not a list of directories", s)
	}
	dirs := strings.Split(rest, "\t")
	if len(dirs) != n || slices.Contains(dirs, "") {
		return nil, fmt.Errorf("%.80q does not hold %d directories", s, n)
	}
	return dirs, nil
}

// DecodeCookie reads the stored form of any layout from 3 on. name is the file or key, for errors.
func DecodeCookie(name string, b []byte) (Cookie, error) {
	c, err := decodeCookie(b)
	if err != nil && !errors.Is(err, ErrCookieTooOld) && !errors.Is(err, ErrFormatTooNew) {
		return Cookie{}, corrupt.New(name, 0, "cookie", err)
	}
	if err != nil {
		return Cookie{}, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

func decodeCookie(b []byte) (Cookie, error) {
	if len(b) > ValueMax {
		return Cookie{}, fmt.Errorf("%d bytes", len(b))
	}
	first, body, _ := bytes.Cut(b, []byte{'\n'})
	v, err := strconv.Atoi(string(bytes.TrimSpace(first)))
	switch {
	case err != nil || v < 0:
		return Cookie{}, fmt.Errorf("layout version %.20q", first)
	case v < cookieVersionMin:
		return Cookie{}, fmt.Errorf("layout %d: %w", v, ErrCookieTooOld)
	case v > cookieVersion:
		return Cookie{}, fmt.Errorf("cookie layout %d (this version reads 3 to %d): %w", v, cookieVersion, ErrFormatTooNew)
	}
	c := Cookie{Version: v}
	if v < cookieVersionText {
		lines := strings.Split(strings.TrimRight(string(body), "\n"), "\n")
		if len(lines) != 3 {
			return Cookie{}, fmt.Errorf("%d lines instead of 3", len(lines))
		}
		c.BookieHost = lines[0]
		c.JournalDirs = []string{lines[1]}
		if c.LedgerDirs, err = splitDirs(lines[2]); err != nil {
			return Cookie{}, err
		}
		return c, c.check()
	}
	fields, err := parseText(body)
	if err != nil {
		return Cookie{}, err
	}
	for _, f := range fields {
		raw, err := f.bytes()
		if err != nil {
			return Cookie{}, err
		}
		s := string(raw)
		switch f.name {
		case "bookieHost":
			c.BookieHost = s
		case "journalDir":
			c.JournalDirs = strings.Split(s, ",")
		case "ledgerDirs":
			c.LedgerDirs, err = splitDirs(s)
		case "instanceId":
			c.InstanceID = s
		case "indexDirs":
			if s != "" {
				c.IndexDirs, err = splitDirs(s)
			}
		default:
			err = fmt.Errorf("unknown field %.40q", f.name)
		}
		if err != nil {
			return Cookie{}, err
		}
	}
	return c, c.check()
}

func (c *Cookie) check() error {
	if c.BookieHost == "" || len(c.JournalDirs) == 0 || slices.Contains(c.JournalDirs, "") || len(c.LedgerDirs) == 0 {
		return errors.New("bookieHost, journalDir or ledgerDirs is missing")
	}
	return nil
}
