package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/binderylog/bindery/bookie"
	"github.com/binderylog/bindery/internal/config"
	"github.com/spf13/cobra"
)

var errNotServing = errors.New("the process does not serve yet, or is stopping: the configuration is not read again")

// reload reads the configuration again and puts in force what can change. Every difference is logged; an error is too, and
// means that the old configuration is in force as it was.
func (p *process) reload() ([]config.Change, error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	changes, err := p.reloadLocked()
	if err != nil {
		var problems config.ProblemsError
		if !errors.As(err, &problems) {
			problems = config.ProblemsError{{Msg: err.Error()}}
		}
		for _, q := range problems {
			p.log.Error("configuration not reloaded", "problem", q.String())
		}
		return nil, err
	}
	// The lines about the changes are written at the more talkative level of the old and the new one.
	level := logLevel(p.live.Load().Log.Level)
	p.level.Set(min(level, p.level.Level()))
	defer p.level.Set(level)
	for _, c := range changes {
		if c.Refusal != "" {
			p.log.Warn("setting keeps its value", "key", c.Key, "in_force", c.From, "file", c.To, "reason", c.Refusal)
			continue
		}
		p.log.Info("setting changed", "key", c.Key, "from", c.From, "to", c.To)
	}
	if len(changes) == 0 {
		p.log.Info("configuration reloaded: nothing is different")
	}
	return changes, nil
}

func (p *process) reloadLocked() ([]config.Change, error) {
	if !p.up.Load() {
		return nil, errNotServing
	}
	old := p.live.Load()
	next, err := old.Reload()
	if err != nil {
		return nil, err
	}
	mixed, changes, err := old.Adopt(next, p.refuseChange)
	if err != nil {
		return nil, err
	}
	share := p.resolve(mixed).Share(len(p.bookies))
	for i, b := range p.bookies {
		if err := b.Tune(bookieTuning(mixed, share)); err != nil && !errors.Is(err, bookie.ErrStopped) {
			return nil, fmt.Errorf("bookie %s: %w", p.plan.bookies[i].id, err)
		}
	}
	p.tuneRecovery(mixed)
	p.live.Store(mixed)
	return changes, nil
}

// refuseChange objects to what the table of settings allows but this process can not do.
func (p *process) refuseChange(key string, c *config.Config) string {
	if key != "limits.in_flight" {
		return ""
	}
	mixed := *p.config
	mixed.Config = *c
	if p.resolve(&mixed).InFlight > p.resolve(p.config).InFlight {
		return "it can be lowered, and raised again to what it was at the start, when the memory was divided; more needs a restart"
	}
	return ""
}

// reloadForAdmin implements admin.Reloader.
func (p *process) reloadForAdmin() (any, error) {
	changes, err := p.reload()
	if changes == nil {
		changes = []config.Change{}
	}
	return changes, err
}

// reloadOnHangup makes SIGHUP a reload until the returned function is called, which waits for one under way.
func (p *process) reloadOnHangup() (end func()) {
	if !p.hangupReloads {
		return func() {}
	}
	hangups := make(chan os.Signal, 1)
	stop := make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-hangups:
				_, _ = p.reload() // it has logged what there is to say
			}
		}
	})
	return func() {
		signal.Stop(hangups)
		close(stop)
		wg.Wait()
	}
}

func newConfigReloadCommand() *cobra.Command {
	var a adminCall
	var output outputFormat
	c := &cobra.Command{
		Use:   "reload",
		Short: "Make a running process read its configuration again",
		Long: "Asks a running process to read its file again, as SIGHUP does; environment and --set stay as they were at its start.\n" +
			"Settings that can change while it runs are put in force, the others are listed and keep their values until a restart.\n" +
			"If the file has an error nothing changes. Exit code 5 if something needs a restart.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			data, err := a.post(c.Context(), "/api/v2/config/reload", nil)
			if err != nil {
				return err
			}
			var r struct {
				Changes []config.Change `json:"changes"`
			}
			if err := json.Unmarshal(data, &r); err != nil {
				return fmt.Errorf("the admin server did not answer as a bindery process does: %w", err)
			}
			return printChanges(c, output, r.Changes)
		},
	}
	a.addFlags(c, false)
	addOutputFlag(c, &output)
	return c
}

func printChanges(c *cobra.Command, output outputFormat, changes []config.Change) error {
	refused := false
	if output == outputJSON {
		if err := printJSON(c.OutOrStdout(), changes); err != nil {
			return err
		}
	} else if len(changes) == 0 {
		if _, err := fmt.Fprintln(c.OutOrStdout(), "nothing is different"); err != nil {
			return err
		}
	}
	for _, ch := range changes {
		refused = refused || ch.Refusal != ""
		if output == outputJSON {
			continue
		}
		line := fmt.Sprintf("%s: %s -> %s", ch.Key, ch.From, ch.To)
		if ch.Refusal != "" {
			line = fmt.Sprintf("%s: stays %s (the file says %s): %s", ch.Key, ch.From, ch.To, ch.Refusal)
		}
		if _, err := fmt.Fprintln(c.OutOrStdout(), line); err != nil {
			return err
		}
	}
	if refused {
		return exit(exitFindings, nil)
	}
	return nil
}
