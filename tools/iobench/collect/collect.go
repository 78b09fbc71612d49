package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// Bounds of a host's answer.
const (
	answerMax = 64 << 20
	errorsMax = 16 << 10
	waitAfter = 5 * time.Second // for a command that was told to end
)

// Options say how hosts are asked.
type Options struct {
	SSH     string        // program; "ssh"
	Remote  string        // iobench on the hosts
	Args    []string      // further flags of quick
	Timeout time.Duration // of one host
	Dir     string        // where the files go; it exists
}

// Outcome is what came of a host.
type Outcome struct {
	Host    string
	Runs    []*result.Run
	File    string // of its results; empty if there are none
	Err     error  // why there are none, or not all
	Asked   bool   // false: the collecting was ended before its turn
	Elapsed time.Duration
}

// OK reports whether a host gave all it was asked for.
func (o *Outcome) OK() bool { return o.Asked && o.Err == nil }

// Run asks the hosts, one after another. It calls before for each of them.
func Run(ctx context.Context, hosts []Host, o Options, before func(n int, h Host)) []Outcome {
	out := make([]Outcome, len(hosts))
	for i, h := range hosts {
		out[i].Host = h.Name
		if ctx.Err() != nil {
			out[i].Err = errors.New("not asked: the collecting was ended")
			continue
		}
		before(i, h)
		start := time.Now()
		out[i].Asked = true
		out[i].Runs, out[i].Err = ask(ctx, h, o)
		out[i].Elapsed = time.Since(start)
		if len(out[i].Runs) == 0 {
			continue
		}
		name := filepath.Join(o.Dir, h.fileName())
		if err := write(name, out[i].Runs); err != nil {
			out[i].Err = errors.Join(out[i].Err, err)
			continue
		}
		out[i].File = name
	}
	return out
}

func write(name string, runs []*result.Run) error {
	var b bytes.Buffer
	if err := result.Encode(&b, runs...); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(vfs.OS(), name, b.Bytes())
}

// command is the line that the host's shell gets.
func command(h Host, o Options) string {
	words := append([]string{o.Remote, "quick", "--output", "json"}, o.Args...)
	words = append(append(words, "--"), h.Dirs...)
	for i, w := range words {
		words[i] = quote(w)
	}
	return strings.Join(words, " ")
}

// quote makes a word that a POSIX shell takes as it is.
func quote(s string) string {
	plain := func(c rune) bool {
		return unicode.IsLetter(c) && c < 0x80 || unicode.IsDigit(c) && c < 0x80 || strings.ContainsRune("_./-=,:@%+", c)
	}
	if s != "" && !strings.ContainsFunc(s, func(c rune) bool { return !plain(c) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// ask runs quick on a host. Runs may come with an error: of a run that was ended early.
func ask(ctx context.Context, h Host, o Options) ([]*result.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	c := exec.CommandContext(ctx, o.SSH, "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4", "--", h.Name, command(h, o))
	c.WaitDelay = waitAfter
	answer, complaints := &bounded{most: answerMax}, &bounded{most: errorsMax, last: true}
	c.Stdout, c.Stderr = answer, complaints
	err := c.Run()
	if answer.over {
		return nil, fmt.Errorf("answered more than %d MiB", answerMax>>20)
	}
	if err != nil {
		err = explain(ctx, o, err, complaints.b.Bytes())
	}
	if answer.b.Len() == 0 {
		if err == nil {
			err = errors.New("answered nothing")
		}
		return nil, err
	}
	runs, derr := result.Decode(&answer.b)
	switch {
	case derr != nil && err != nil:
		return nil, err
	case derr != nil:
		return nil, fmt.Errorf("its answer is no result: %s", oneLine(derr.Error()))
	}
	return runs, err
}

// explain says in one line why ssh ended as it did.
func explain(ctx context.Context, o Options, err error, complaints []byte) error {
	last := ""
	for line := range strings.Lines(string(complaints)) {
		if s := oneLine(line); s != "" {
			last = strings.TrimPrefix(strings.TrimPrefix(s, "iobench: "), "ssh: ")
		}
	}
	var e *exec.ExitError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", o.Timeout)
	case ctx.Err() != nil:
		return errors.New("the collecting was ended meanwhile")
	case !errors.As(err, &e):
		return err
	case e.ExitCode() == 127:
		return fmt.Errorf("%s is not there (--remote says where it is): %s", o.Remote, last)
	case e.ExitCode() == 255:
		return fmt.Errorf("ssh: %s", or(last, "the connection failed"))
	}
	return fmt.Errorf("%s (exit %d)", or(last, "iobench failed"), e.ExitCode())
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// oneLine drops what a terminal would act on.
func oneLine(s string) string {
	const most = 300
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "?"), func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) }), " ")
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}

// bounded keeps the first bytes written to it, or the last ones.
type bounded struct {
	b    bytes.Buffer
	most int
	last bool
	over bool
}

// Write takes everything, so that the writer is not stopped, and keeps what fits.
func (w *bounded) Write(p []byte) (int, error) {
	n := len(p)
	if w.last {
		w.b.Write(p[max(0, n-w.most):])
		if extra := w.b.Len() - w.most; extra > 0 {
			w.b.Next(extra)
		}
		return n, nil
	}
	if room := w.most - w.b.Len(); n > room {
		w.over = true
		p = p[:room]
	}
	w.b.Write(p)
	return n, nil
}
