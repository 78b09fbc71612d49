// Package usage words what is wrong with the arguments of a command, from the words of its usage line: which of them is
// missing, or which argument is one too many. It knows nothing of flags and starts no goroutine.
//
// A usage line is a command's name and its operands: `read ID [FIRST [LAST]]`, `ls DIR...`, `diff A B`. What stands in
// brackets may be left out, three dots take any number, and the first flag, in brackets or not, ends the operands.
package usage

import (
	"errors"
	"fmt"
	"strings"
)

// operands are what a usage line says of arguments.
type operands struct {
	needed []string
	most   int // -1: any number
}

func parse(line string) (o operands) {
	words := strings.Fields(line)
	for _, w := range words[min(len(words), 1):] {
		name := strings.Trim(w, "[].")
		if strings.HasPrefix(name, "-") {
			break
		}
		if !strings.HasPrefix(w, "[") {
			o.needed = append(o.needed, name)
		}
		if strings.Contains(w, "...") {
			o.most = -1
		}
		if o.most >= 0 {
			o.most++
		}
	}
	return o
}

// Arguments says what is wrong with args for a command with this usage line, or nil if the line has room for them.
func Arguments(line string, args []string) error {
	o := parse(line)
	switch {
	case len(args) < len(o.needed):
		missing := o.needed[len(args):]
		verb := "is"
		if len(missing) > 1 {
			verb = "are"
		}
		return fmt.Errorf("%s %s missing", list(missing), verb)
	case o.most == 0 && len(args) > 0:
		return fmt.Errorf("%q is not expected: it takes no arguments", args[0])
	case o.most > 0 && len(args) > o.most:
		return fmt.Errorf("%q is one argument too many", args[o.most])
	}
	return nil
}

// FromCobra reports whether the text is one of cobra's own about the number of arguments.
func FromCobra(err error) bool {
	for _, start := range []string{"accepts ", "requires ", "unknown command"} {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}

// Line adds how a command is used to what is wrong with a use of it, on the same line.
func Line(err error, useLine string) error { return fmt.Errorf("%w (usage: %s)", err, useLine) }

// Explain is Arguments with the usage line behind it; what Arguments has no words for keeps its own.
func Explain(err error, line, useLine string, args []string) error {
	if better := Arguments(line, args); better != nil {
		err = better
	}
	return Line(err, useLine)
}

// Missing is the error of what must be given, such as `--config FILE`, and of what it is for.
func Missing(what, use, useLine string) error {
	return Line(errors.New(what+" is missing: "+use), useLine)
}

func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
