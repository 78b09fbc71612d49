// Command s3server is an S3 server for tests: versitygw's gateway over a folder, with one account, until its standard input ends.
//
// It is a module of its own so that the gateway's dependencies stay out of the product's. Tests start it through
// offload/objstore/s3/s3test, which hands it a free port of the loopback interface and waits until it answers.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	var cfg embedgw.Config
	dir := flag.String("dir", "", "absolute path of the folder; buckets are the folders in its data")
	listen := flag.String("listen", "", "host:port")
	flag.StringVar(&cfg.RootUserAccess, "access", "", "access key of the account")
	flag.StringVar(&cfg.RootUserSecret, "secret", "", "its secret key")
	flag.StringVar(&cfg.Region, "region", "us-east-1", "region")
	flag.StringVar(&cfg.CertFile, "cert", "", "certificate (PEM): TLS instead of plain http")
	flag.StringVar(&cfg.KeyFile, "key", "", "its key (PEM)")
	flag.Parse()
	cfg.Ports = []string{*listen}
	cfg.MaxConnections, cfg.MaxRequests, cfg.MultipartMaxParts = 1024, 512, 10_000
	cfg.KeepAlive, cfg.Quiet = true, true
	if err := run(*dir, &cfg); err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		os.Exit(1)
	}
}

func run(dir string, cfg *embedgw.Config) error {
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	attributes, opts, err := storer(dir, data)
	if err != nil {
		return err
	}
	store, err := posix.New(data, attributes, opts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // whoever started this is gone, or done
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return embedgw.RunVersityGW(ctx, store, cfg)
}

// storer keeps attributes with the files, or beside them on a file system that has none. The latter loses those of an object that is written while the
// last other one of its folder is deleted.
func storer(dir, data string) (meta.MetadataStorer, posix.PosixOpts, error) {
	attributes := meta.XattrMeta{}
	if attributes.Test(data) == nil {
		return attributes, posix.PosixOpts{}, nil
	}
	side := filepath.Join(dir, "meta")
	if err := os.MkdirAll(side, 0o755); err != nil {
		return nil, posix.PosixOpts{}, err
	}
	beside, err := meta.NewSideCar(side)
	return beside, posix.PosixOpts{SideCarDir: side, ForceNoTmpFile: true}, err
}
