package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// Bounds of what is read. They lie far above what any run writes.
const (
	FileBytesMax   = 256 << 20
	runsMax        = 1024
	chaptersMax    = 256
	cellsMax       = 4096
	seriesMax      = 512
	pointsMax      = 400_000 // of a series: more than four days in seconds
	stallEventsMax = 100_000
	warningsMax    = 10_000
	devicesMax     = 256
)

// SchemaError is returned for a document of another schema.
type SchemaError struct{ Got string }

func (e *SchemaError) Error() string {
	if e.Got == "" {
		return "not a result of iobench: it names no schema"
	}
	return fmt.Sprintf("schema %q; this iobench reads %q: use the version that wrote it, or a newer one", e.Got, Schema)
}

// InvalidError is returned for a document that says something that can not be.
type InvalidError struct {
	Where string // path in the document
	What  string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("%s: %s", e.Where, e.What) }

// Encode writes runs as a file: indented JSON, one document after another.
func Encode(w io.Writer, runs ...*Run) error {
	for _, r := range runs {
		if err := r.Validate(); err != nil {
			return err
		}
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if _, err := w.Write(append(data, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// Decode reads all runs of a file. A file without one is an error.
func Decode(r io.Reader) ([]*Run, error) {
	data, err := io.ReadAll(io.LimitReader(r, FileBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(data) > FileBytesMax {
		return nil, fmt.Errorf("more than %d bytes: not a result of iobench", FileBytesMax)
	}
	var runs []*Run
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		var doc json.RawMessage
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("run %d: %w", len(runs)+1, err)
		}
		if len(runs) == runsMax {
			return nil, fmt.Errorf("more than %d runs", runsMax)
		}
		run, err := decodeRun(doc)
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", len(runs)+1, err)
		}
		runs = append(runs, run)
	}
	if len(runs) == 0 {
		return nil, errors.New("no run of iobench in it")
	}
	return runs, nil
}

// ReadFile reads all runs of a file.
func ReadFile(name string) ([]*Run, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	runs, err := Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return runs, nil
}

func decodeRun(doc []byte) (*Run, error) {
	doc = printable(doc)
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(doc, &head); err != nil {
		return nil, err
	}
	if head.Schema != Schema {
		return nil, &SchemaError{Got: head.Schema}
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	var run Run
	if err := d.Decode(&run); err != nil {
		return nil, err
	}
	if err := run.Validate(); err != nil {
		return nil, err
	}
	return &run, nil
}

// finite tells numbers that a figure can have.
func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return false
		}
	}
	return true
}
