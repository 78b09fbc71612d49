package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// write prints the table, and leaves it with the figures as JSON and a page with charts beside it: FILE.md, .json and .html.
func (r *report) write(file string) error {
	if _, err := io.WriteString(os.Stdout, r.markdown()); err != nil || file == "" {
		return err
	}
	figures, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	page, err := r.page()
	if err != nil {
		return err
	}
	base := strings.TrimSuffix(file, filepath.Ext(file))
	return errors.Join(
		os.WriteFile(base+".md", []byte(r.markdown()), 0o644),
		os.WriteFile(base+".json", append(figures, '\n'), 0o644),
		os.WriteFile(base+".html", page, 0o644))
}
