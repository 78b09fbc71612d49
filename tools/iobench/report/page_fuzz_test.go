package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/binderylog/bindery/tools/iobench/compare"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// FuzzPage: whatever decodes as a result makes a page with no script but ours, alone and beside another run.
func FuzzPage(f *testing.F) {
	data, err := document()
	require.NoError(f, err)
	runs, err := result.Decode(bytes.NewReader(data))
	require.NoError(f, err)
	for _, keep := range []string{result.ChapterAlloc, result.ChapterSustain, result.ChapterStalls} {
		r := *runs[0]
		r.Chapters, r.Warnings = nil, nil
		for _, c := range runs[0].Chapters {
			if c.Name == keep {
				c.Cells = c.Cells[:1]
				c.Verdicts = nil
				r.Chapters = append(r.Chapters, c)
			}
		}
		var b bytes.Buffer
		require.NoError(f, result.Encode(&b, &r))
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		runs, err := result.Decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		var size *SizeError
		if err := Write(&b, runs); err != nil && !errors.As(err, &size) {
			t.Fatal(err)
		}
		require.LessOrEqual(t, strings.Count(strings.ToLower(b.String()), "<script"), 1)
		other := *runs[0]
		other.RunID += "2"
		c, err := compare.Runs([]*result.Run{runs[0], &other}, compare.ByNothing)
		require.NoError(t, err)
		b.Reset()
		if err := WriteComparison(&b, c, nil, false); err != nil && !errors.As(err, &size) {
			t.Fatal(err)
		}
		require.LessOrEqual(t, strings.Count(strings.ToLower(b.String()), "<script"), 1)
	})
}
