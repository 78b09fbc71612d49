// Package config reads the one configuration file, TOML, into the options of the parts that a process runs.
//
// Every setting is a row of one table (settings.go): its key, its type, its default, the range, what it does, why the
// default is what it is, and the old BookKeeper key. Parsing, checking, `config explain` and the environment names are
// all made from that table, so none of them can know a setting that another one does not.
//
// A value comes from the strongest of four places: the built-in default, the file, the environment variable
// BINDERY_<SECTION>__<KEY> (BINDERY_GC__MINOR__BELOW for gc.minor.below), and --set section.key=value.
//
// Invariants:
//   - An unknown key is an error that names its line and the nearest known key.
//   - A size or duration without a unit is an error.
//   - A setting that this version can not honour is refused where ignoring it would be unsafe, and warned about
//     otherwise. It is never ignored in silence.
//   - Secrets never stand in a configuration: settings hold paths of files.
//
// Limits: a file has at most 1 MiB. The package starts no goroutine. Only commands import it.
package config
