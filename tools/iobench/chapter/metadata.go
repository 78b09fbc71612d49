package chapter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/binderylog/bindery/internal/vfs"
	"github.com/binderylog/bindery/tools/iobench/engine"
	"github.com/binderylog/bindery/tools/iobench/result"
)

// trimBytes is how much of a file system is trimmed at a time.
const trimBytes = 64 * engine.MiB

// Metadata measures what a journal does when it changes segments and a collector when it deletes logs: create, rename,
// sync of a directory, fallocate, unlink of a large file, trim. Its files have names for the moment between creating and
// unlinking them.
func Metadata(ctx context.Context, p *Place, o Options) (*Result, error) {
	b := open(result.ChapterMetadata, p, o)
	m := &metadata{env: p.Env, size: min(o.FileBytes, 1024*engine.MiB)}
	probes := map[string]*engine.Probe{}
	for _, op := range []string{"create", "fallocate", "rename", "dirsync", "unlink"} {
		probes[op] = b.probe(result.Cell{ID: op, Op: op})
	}
	steps := []struct {
		op string
		do func() error
	}{{"create", m.create}, {"fallocate", m.fallocate}, {"rename", m.rename}, {"dirsync", m.dirsync}, {"unlink", m.unlink}}
	const cyclesMin, cyclesMax = 5, 2000
	cycles, end := 0, b.began.Add(o.Budget)
	var err error
	for err == nil && (cycles < cyclesMin || time.Now().Before(end) && cycles < cyclesMax) {
		for _, s := range steps {
			w := engine.FuncWorker(nil, func() (engine.Parts, error) { return engine.Parts{}, s.do() })
			if err = p.Env.Run(ctx, engine.Load{Probe: probes[s.op], Workers: []engine.Worker{w}, Duration: 1, OpsMin: 1, OpsMax: 1}); err != nil {
				break
			}
		}
		cycles++
		p.Env.Report(b.chapter.Name, "", min(1, float64(time.Since(b.began))/float64(max(o.Budget, 1))))
	}
	err = errors.Join(err, m.close())
	trim := result.Cell{ID: "trim", Op: "trim", BlockBytes: trimBytes}
	if t, ok := p.Env.FS.(engine.Trimmer); err == nil && ok {
		if terr := t.Trim(p.Env.Dir, trimBytes); terr != nil {
			b.unsupported(trim, terr)
		} else {
			w := engine.FuncWorker(nil, func() (engine.Parts, error) { return engine.Parts{}, t.Trim(p.Env.Dir, trimBytes) })
			err = p.Env.Run(ctx, engine.Load{Probe: b.probe(trim), Workers: []engine.Worker{w}, Duration: 1, OpsMin: 3, OpsMax: 3})
		}
	}
	for _, pr := range probes {
		pr.OneRound()
	}
	return b.close(err)
}

// metadata is the file that is made and unmade.
type metadata struct {
	env  *engine.Env
	size int64
	name string
	file vfs.File
}

func (m *metadata) create() (err error) {
	m.name = filepath.Join(m.env.Dir, fmt.Sprintf("%smeta-%016x", engine.TempPrefix, rand.Uint64()))
	m.file, err = m.env.FS.Open(m.name, vfs.Mode{Write: true, Create: true, Exclusive: true})
	if err != nil {
		m.name = ""
	}
	return err
}

func (m *metadata) fallocate() error { return m.file.Preallocate(m.size) }

func (m *metadata) rename() error {
	to := m.name + "-2"
	if err := m.env.FS.Rename(m.name, to); err != nil {
		return err
	}
	m.name = to
	return nil
}

func (m *metadata) dirsync() error { return m.env.FS.SyncDir(m.env.Dir) }

// unlink takes the name away and closes the file, which is when its blocks are given back.
func (m *metadata) unlink() error {
	name := m.name
	m.name = ""
	err := m.env.FS.Remove(name)
	f := m.file
	m.file = nil
	return errors.Join(err, f.Close())
}

// close leaves nothing, wherever a cycle ended.
func (m *metadata) close() error {
	var errs []error
	if m.name != "" {
		errs = append(errs, m.env.FS.Remove(m.name))
	}
	if m.file != nil {
		errs = append(errs, m.file.Close())
	}
	return errors.Join(errs...)
}
