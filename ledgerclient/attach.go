package ledgerclient

import (
	"context"
	"net"

	"github.com/binderylog/bindery/internal/metadata"
)

// DialFunc connects to a bookie at an address such as "10.0.0.7:3181".
type DialFunc func(ctx context.Context, addr string) (net.Conn, error)

// Attach is Dial for a program that has the metadata store open already, or its own way to reach bookies. The client
// closes the store. Nil dial means TCP.
func Attach(store metadata.Store, views *metadata.Views, o *Options, dial DialFunc) (*Client, error) {
	o = o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if dial == nil {
		dial = netDial
	}
	return newClient(store, views, o, dial)
}
