package bookie

import (
	"context"
	"net"
)

// Bookie is one bookie: directories, journals, storage, server and registration.
type Bookie struct {
	o Options
}

// New checks the options. It touches neither disk nor network.
func New(o Options) (*Bookie, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, withExit(ExitConfig, err)
	}
	return &Bookie{o: o}, nil
}

// Start brings the bookie up and returns once it serves and is registered. If it fails, everything it started has been
// stopped and the error is an *ExitError. The admin views (Status and the like) answer from New on.
func (b *Bookie) Start(ctx context.Context) error { return exitErrorf(ExitIO, "not yet") }

// Stop stops the bookie in the order that the package comment gives. ctx bounds the waiting for clients; what must be on
// disk is written whatever ctx says.
func (b *Bookie) Stop(ctx context.Context) error { return nil }

// Addr returns the address on which the bookie serves, nil before it does.
func (b *Bookie) Addr() net.Addr { return nil }

// Done is closed when the bookie can not go on by itself, for instance because another process took its registration.
// Err then tells why; Stop still has to be called.
func (b *Bookie) Done() <-chan struct{} { return nil }

// Err returns why Done is closed: an *ExitError.
func (b *Bookie) Err() error { return nil }
