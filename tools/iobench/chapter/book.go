package chapter

import (
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// Book is a chapter being written, for those that live in packages of their own.
type Book struct{ b *book }

// Open begins a chapter.
func Open(name string, p *Place, o Options) Book { return Book{open(name, p, o)} }

// Probe adds a cell.
func (b Book) Probe(c result.Cell) *engine.Probe { return b.b.probe(c) }

// Unsupported adds a cell that could not be measured.
func (b Book) Unsupported(c result.Cell, err error) { b.b.unsupported(c, err) }

// BytesEach is what one of n loads may write in one round.
func (b Book) BytesEach(n int) int64 { return b.b.bytesEach(n) }

// Compare adds a verdict on cells.
func (b Book) Compare(question string, m engine.Metric, ids ...string) {
	b.b.compare(question, m, ids...)
}

// Chapter is what there is so far.
func (b Book) Chapter() result.Chapter { return b.b.chapter }

// Close ends the chapter; the result holds what was measured, beside the error that ended it.
func (b Book) Close(err error) (*Result, error) { return b.b.close(err) }
