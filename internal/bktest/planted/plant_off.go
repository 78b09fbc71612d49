//go:build !mutants

package planted

import "fmt"

// Plant refuses every name but "": this build has no planted bugs.
func Plant(name string) error {
	if name == "" {
		return nil
	}
	return fmt.Errorf("%q can not be planted: build with -tags mutants", name)
}
