//go:build mutants

package planted

import (
	"fmt"

	"github.com/binderylog/bindery/internal/ledger"
)

// Plant plants the bug of that name; "" is none.
func Plant(name string) error {
	if name == "" {
		return nil
	}
	for _, b := range Bugs() {
		if b.Name == name {
			ledger.Plant(b.Mutant)
			return nil
		}
	}
	return fmt.Errorf("no planted bug is called %q", name)
}
