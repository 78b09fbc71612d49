package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's template, style and script
	"encoding/base64"
	"fmt"
	"html/template"
	"io"

	"github.com/binderylog/bindery/tools/iobench/result"
)

// BytesMax is the size that a page may have.
const BytesMax = 1_000_000

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed copy.js
	copyJS string
)

// SizeError is returned for results that make too large a page.
type SizeError struct{ Runs, Bytes int }

func (e *SizeError) Error() string {
	return fmt.Sprintf("%d runs make a page of %d kB, more than %d kB: take fewer (report: --run N; compare: fewer files, or --by model)",
		e.Runs, e.Bytes/1000, BytesMax/1000)
}

// page is what the template gets.
type page struct {
	Title      string
	Style      template.CSS
	Script     template.JS
	ScriptHash string
	Runs       []runView
	Comparison *comparisonView
}

// tmpl is parsed once; a mistake in it fails every test.
var tmpl = template.Must(template.New("page").Parse(pageHTML))

// Write writes the page about runs.
func Write(w io.Writer, runs []*result.Run) error {
	p := page{Title: "iobench"}
	for i, r := range runs {
		p.Runs = append(p.Runs, newRunView(r, i))
	}
	if len(p.Runs) > 0 {
		p.Title = "iobench: " + p.Runs[0].Title
	}
	return p.write(w, len(runs))
}

func (p *page) write(w io.Writer, runs int) error {
	p.Style, p.Script = template.CSS(pageCSS), template.JS(copyJS)
	sum := sha256.Sum256([]byte(copyJS))
	p.ScriptHash = base64.StdEncoding.EncodeToString(sum[:])
	var b bytes.Buffer
	if err := tmpl.Execute(&b, p); err != nil {
		return err
	}
	if b.Len() > BytesMax {
		return &SizeError{Runs: runs, Bytes: b.Len()}
	}
	_, err := w.Write(b.Bytes())
	return err
}
