package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// ImportOptions say what an import needs to know of the machine.
type ImportOptions struct {
	HostName func() (string, error) // full name of this host, for useHostNameAsBookieID
	CheckURI func(string) error     // says what is wrong with a metadata URI
}

// ImportedKey is one key of BookKeeper's configuration and what became of it.
type ImportedKey struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Where string `json:"where"`
	Class string `json:"class"` // mapped, automatic, obsolete, refused or unknown
	To    string `json:"to,omitempty"`
	Note  string `json:"note,omitempty"`
}

// Imported is the outcome of an import.
type Imported struct {
	Keys []ImportedKey
	TOML []byte // what differs from our defaults, with the old key beside each value

	settings map[string]importedValue
}

type importedValue struct {
	text string // as setText takes it
	from string // old key
}

// Import translates BookKeeper's configuration.
func Import(props []Property, o ImportOptions) *Imported {
	im := &importer{o: o, out: &Imported{settings: map[string]importedValue{}}, index: map[string]int{}}
	for _, p := range props {
		im.index[p.Key] = len(im.out.Keys)
		im.out.Keys = append(im.out.Keys, ImportedKey{Key: p.Key, Value: secret(p.Key, strings.TrimSpace(p.Value)), Where: p.Where})
	}
	for i := range im.out.Keys {
		im.classify(&im.out.Keys[i], strings.TrimSpace(props[i].Value))
	}
	im.together()
	im.out.TOML = im.render()
	return im.out
}

// secret keeps passwords out of what is printed.
func secret(key, value string) string {
	if value != "" && (key == "passwd" || strings.HasSuffix(key, "Password")) {
		return "(not shown)"
	}
	return value
}

// Count returns how many keys are of a class.
func (i *Imported) Count(class string) (n int) {
	for _, k := range i.Keys {
		if k.Class == class {
			n++
		}
	}
	return n
}

type importer struct {
	o     ImportOptions
	out   *Imported
	index map[string]int
	hints int
}

func (im *importer) classify(k *ImportedKey, value string) {
	rule, known := importRules[k.Key]
	for _, prefix := range []string{"storageserver.", "storage.", "dlog."} {
		if strings.HasPrefix(k.Key, prefix) {
			rule, known = importRule{class: ImportObsolete, note: "of BookKeeper's table service"}, true
		}
	}
	if !known {
		k.Class, k.Note = ImportUnknown, "no such key of BookKeeper"
		if im.hints++; im.hints <= hintsMax {
			if near := nearestOld(k.Key); near != "" {
				k.Note += "; did you mean " + near + "?"
			}
		}
		return
	}
	k.Class, k.Note = rule.class, rule.note
	if rule.refuse != nil {
		if why := rule.refuse(value); why != "" {
			k.Class, k.Note = ImportRefused, why
		}
		return
	}
	if rule.to == "" {
		return
	}
	if value == "" { // an empty value means the default
		k.Class, k.Note = ImportAutomatic, "empty: the default"
		return
	}
	text, err := convert(value, rule.unit)
	if err == nil {
		err = im.put(rule.to, text, k.Key)
	}
	if err != nil {
		k.Class, k.Note = ImportRefused, err.Error()
	}
}

// convert turns a value with BookKeeper's implied unit into text with its unit.
func convert(value, unit string) (string, error) {
	switch unit {
	case "text", "int":
		return value, nil
	case "paths":
		return strings.Join(splitList(value), ","), nil
	case "bool":
		switch {
		case isTrue(value):
			return "true", nil
		case isFalse(value):
			return "false", nil
		}
		return "", fmt.Errorf("%q is neither true nor false", value)
	case "ratio":
		f, err := strconv.ParseFloat(strings.TrimRight(value, "fFdD"), 64)
		if err != nil {
			return "", fmt.Errorf("%q is not a number", value)
		}
		return strconv.FormatFloat(f, 'f', -1, 64), nil
	}
	n, err := strconv.ParseInt(strings.TrimRight(value, "lL"), 10, 64)
	if err != nil || n < 0 || n > 1<<53 {
		return "", fmt.Errorf("%q is not a whole number", value)
	}
	switch unit {
	case "ms":
		return Duration(time.Duration(n) * time.Millisecond).String(), nil
	case "s":
		return Duration(time.Duration(n) * time.Second).String(), nil
	case "MB":
		return sizeText(n * mib), nil
	}
	return sizeText(n), nil
}

// sizeText is Size.String where that is exact.
func sizeText(n int64) string {
	if s := Size(n).String(); n == 0 || !strings.Contains(s, ".") {
		return s
	}
	return strconv.FormatInt(n, 10) + "B"
}

// put sets one of our settings.
func (im *importer) put(key, text, from string) error {
	s := settingByKey[key]
	var c, def Config
	_ = setText(s.field(&def), s.Default, s.Auto)
	if err := setText(s.field(&c), text, s.Auto); err != nil {
		return err
	}
	im.out.settings[key] = importedValue{text, from}
	to := key + " = " + s.Format(&c)
	if s.Format(&c) == s.Format(&def) {
		to += " (the default)"
	}
	for _, name := range strings.Split(from, " + ") {
		if i, ok := im.index[name]; ok {
			k := &im.out.Keys[i]
			k.Class, k.Note = ImportMapped, ""
			if k.To != "" {
				to = k.To + ", " + to
			}
			k.To = to
		}
	}
	return nil
}

// value returns the text of a key, "" if it is not there.
func (im *importer) value(key string) string {
	if i, ok := im.index[key]; ok {
		return im.out.Keys[i].Value
	}
	return ""
}

func (im *importer) has(key string) bool { _, ok := im.index[key]; return ok }

// set says what became of a key that goes with others.
func (im *importer) set(key, class, note string) {
	if i, ok := im.index[key]; ok {
		im.out.Keys[i].Class, im.out.Keys[i].Note = class, note
	}
}

// try is put, with a failure noted at every key that the value comes from.
func (im *importer) try(key, text, from string) {
	if err := im.put(key, text, from); err != nil {
		for _, name := range strings.Split(from, " + ") {
			im.set(name, ImportRefused, err.Error())
		}
	}
}

// from joins the names of those keys that are there.
func (im *importer) from(keys ...string) string {
	var out []string
	for _, k := range keys {
		if im.has(k) {
			out = append(out, k)
		}
	}
	return strings.Join(out, " + ")
}

// together translates what BookKeeper says with several keys.
func (im *importer) together() {
	im.address()
	im.journal()
	im.compaction()
	im.diskMarks()
	im.metadata()
	im.http()
	im.racks()
	if v := im.value("readOnlyModeOnAnyDiskFullEnabled"); v != "" {
		word := "any"
		if isFalse(v) {
			word = "all"
		}
		im.try("disk.read_only_when", word, "readOnlyModeOnAnyDiskFullEnabled")
	}
	im.rate("waitTimeoutOnResponseBackpressureMs", "limits.slow_client_timeout", "ms", "off: the default of ours")
	im.rate("replicationRateByBytes", "recovery.rate", "bytes", "unlimited: the default of ours")
	for i := range im.out.Keys { // those that a group left alone
		if k := &im.out.Keys[i]; k.Class == ImportMapped && k.To == "" {
			k.Class, k.Note = ImportAutomatic, cmp.Or(strings.TrimPrefix(k.Note, noteTogether), "the default")
		}
	}
}

// rate maps a number of which zero and below mean off.
func (im *importer) rate(old, key, unit, off string) {
	v := im.value(old)
	if n, err := strconv.ParseFloat(v, 64); v == "" || err == nil && n <= 0 {
		im.set(old, ImportAutomatic, off)
		return
	}
	text, err := convert(v, unit)
	if err != nil {
		im.set(old, ImportRefused, err.Error())
		return
	}
	im.try(key, text, old)
}

func (im *importer) address() {
	port := cmp.Or(im.value("bookiePort"), "3181")
	host := "0.0.0.0"
	if ifc := im.value("listeningInterface"); ifc != "" {
		host = "%" + ifc
	}
	if from := im.from("bookiePort", "listeningInterface"); from != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			im.set("bookiePort", ImportRefused, fmt.Sprintf("%q is no port that clients could know", port))
		} else {
			im.try("bookie.listen", host+":"+port, from)
		}
	}
	switch advertised := im.value("advertisedAddress"); {
	case advertised != "":
		im.try("bookie.advertised_address", advertised, "advertisedAddress")
		im.set("useHostNameAsBookieID", ImportAutomatic, "advertisedAddress wins")
		im.set("useShortHostName", ImportAutomatic, "advertisedAddress wins")
	case isTrue(im.value("useHostNameAsBookieID")):
		im.set("advertisedAddress", ImportAutomatic, "empty: the host name, as useHostNameAsBookieID says")
		name, err := "", errors.New("the host name is not known")
		if im.o.HostName != nil {
			name, err = im.o.HostName()
		}
		if err != nil {
			im.set("useHostNameAsBookieID", ImportRefused, err.Error()+"; set bookie.advertised_address to it")
			return
		}
		if isTrue(im.value("useShortHostName")) {
			name, _, _ = strings.Cut(name, ".")
		}
		im.try("bookie.advertised_address", name, im.from("useHostNameAsBookieID", "useShortHostName"))
	default:
		im.set("advertisedAddress", ImportAutomatic, "empty: the address of the default route")
		im.set("useHostNameAsBookieID", ImportAutomatic, "off: the address of the default route")
		im.set("useShortHostName", ImportAutomatic, "counts only with useHostNameAsBookieID")
	}
}

func (im *importer) journal() {
	dirs := "journalDirectories"
	if im.value(dirs) == "" {
		dirs = "journalDirectory"
	} else {
		im.set("journalDirectory", ImportAutomatic, "journalDirectories wins")
	}
	if v := im.value(dirs); v != "" {
		im.try("storage.journal_dirs", strings.Join(splitList(v), ","), dirs)
	}
	switch {
	case isFalse(im.value("journalWriteData")):
		im.set("journalWriteData", ImportRefused, "a bookie without a journal is not in this version")
	case isFalse(im.value("journalSyncData")):
		im.try("journal.durability", "relaxed", "journalSyncData")
		im.try("journal.io", "buffered", "journalSyncData")
	}
	im.set("journalWriteData", im.classOf("journalWriteData", ImportAutomatic), im.noteOf("journalWriteData", noteAlways))
	if isTrue(im.value("journalSyncData")) {
		im.try("journal.durability", "sync", "journalSyncData")
	}
	wait := im.value("journalMaxGroupWaitMSec")
	switch {
	case isFalse(im.value("journalAdaptiveGroupWrites")):
		im.try("journal.max_group_wait", "0s", "journalAdaptiveGroupWrites")
		im.set("journalMaxGroupWaitMSec", ImportAutomatic, "off with journalAdaptiveGroupWrites")
	case wait == "" || wait == "1" || wait == "2":
		im.set("journalMaxGroupWaitMSec", ImportAutomatic, "as the stock files say; groups fill by themselves while another one is written, without waiting")
		im.set("journalAdaptiveGroupWrites", ImportAutomatic, noteAlways)
	default:
		im.set("journalAdaptiveGroupWrites", ImportAutomatic, noteAlways)
		text, err := convert(wait, "ms")
		if err != nil {
			im.set("journalMaxGroupWaitMSec", ImportRefused, err.Error())
			return
		}
		im.try("journal.max_group_wait", text, "journalMaxGroupWaitMSec")
	}
}

func (im *importer) classOf(key, otherwise string) string {
	if i, ok := im.index[key]; ok && im.out.Keys[i].Class == ImportRefused {
		return ImportRefused
	}
	return otherwise
}

func (im *importer) noteOf(key, otherwise string) string {
	if i, ok := im.index[key]; ok && im.out.Keys[i].Class == ImportRefused {
		return im.out.Keys[i].Note
	}
	return otherwise
}

func (im *importer) compaction() {
	for _, kind := range []string{"minor", "major"} {
		below, every := kind+"CompactionThreshold", kind+"CompactionInterval"
		v, err := strconv.ParseFloat(im.value(below), 64)
		s, serr := strconv.ParseInt(im.value(every), 10, 64)
		switch {
		case im.value(below) != "" && err == nil && v <= 0, im.value(every) != "" && serr == nil && s <= 0:
			if kind == "minor" {
				im.try("gc.minor.below", "0", im.from(below, every)) // nothing is below it: never
			} else {
				im.try("gc.major.every", "87600h", im.from(below, every)) // ten years; the mark stays above that of minor compaction
			}
			continue
		case im.value(below) != "":
			im.plain(below, "gc."+kind+".below", "ratio")
		}
		if im.value(every) != "" {
			im.plain(every, "gc."+kind+".every", "s")
		}
	}
	if !isTrue(im.value("isThrottleByBytes")) {
		im.set("isThrottleByBytes", ImportAutomatic, "compaction is limited by bytes: gc.rate")
		im.set("compactionRateByBytes", ImportAutomatic, "counts only with isThrottleByBytes; adaptive")
		return
	}
	v := im.value("compactionRateByBytes")
	n, err := strconv.ParseInt(v, 10, 64)
	if v == "" || err != nil {
		im.set("isThrottleByBytes", ImportAutomatic, "adaptive")
		return
	}
	im.try("gc.rate", sizeText(max(n, mib)), im.from("isThrottleByBytes", "compactionRateByBytes"))
	if n < mib {
		im.set("compactionRateByBytes", ImportMapped, "raised to the least that is allowed")
	}
}

func (im *importer) plain(old, key, unit string) {
	text, err := convert(im.value(old), unit)
	if err != nil {
		im.set(old, ImportRefused, err.Error())
		return
	}
	im.try(key, text, old)
}

// diskMarks keeps the marks in their order where only some of them are given.
func (im *importer) diskMarks() {
	full, ok := im.out.settings["disk.full_at"]
	if !ok {
		return
	}
	f, err := strconv.ParseFloat(full.text, 64)
	if err != nil || f <= 0.1 {
		return
	}
	for key, gap := range map[string]float64{"disk.warn_at": 0.05, "disk.resume_below": 0.03} {
		def, _ := strconv.ParseFloat(settingByKey[key].Default, 64)
		if _, given := im.out.settings[key]; !given && def >= f {
			text := strconv.FormatFloat(f-gap, 'f', 2, 64)
			im.out.settings[key] = importedValue{text, "follows diskUsageThreshold"}
		}
	}
}

func (im *importer) metadata() {
	uri, from := im.value("metadataServiceUri"), "metadataServiceUri"
	if !isSet(uri) {
		im.set("metadataServiceUri", ImportAutomatic, "empty: from zkServers")
		servers := strings.Join(strings.FieldsFunc(im.value("zkServers"), func(r rune) bool { return r == ',' || r == ';' || r == ' ' }), ";")
		if servers == "" {
			im.set("zkServers", ImportAutomatic, "empty")
			return
		}
		uri, from = "zk://"+servers+cmp.Or(im.value("zkLedgersRootPath"), "/ledgers"), im.from("zkServers", "zkLedgersRootPath")
	} else {
		im.set("zkServers", ImportAutomatic, "metadataServiceUri wins")
		im.set("zkLedgersRootPath", ImportAutomatic, "metadataServiceUri wins")
	}
	if im.o.CheckURI != nil {
		if err := im.o.CheckURI(uri); err != nil {
			for _, k := range strings.Split(from, " + ") {
				im.set(k, ImportRefused, err.Error())
			}
			return
		}
	}
	im.try("metadata.uri", uri, from)
}

// http finds out where BookKeeper serves metrics: with its admin server, or else with that of Prometheus's provider.
func (im *importer) http() {
	if isTrue(im.value("httpServerEnabled")) {
		im.try("http.listen", cmp.Or(im.value("httpServerHost"), "0.0.0.0")+":"+cmp.Or(im.value("httpServerPort"), "8080"),
			im.from("httpServerEnabled", "httpServerHost", "httpServerPort"))
		for _, k := range []string{"prometheusStatsHttpEnable", "prometheusStatsHttpAddress", "prometheusStatsHttpPort"} {
			im.set(k, ImportAutomatic, "metrics are on the admin server")
		}
		return
	}
	for _, k := range []string{"httpServerEnabled", "httpServerHost", "httpServerPort"} {
		im.set(k, ImportAutomatic, "one server for metrics and operators, where Prometheus looks already")
	}
	if from := im.from("prometheusStatsHttpAddress", "prometheusStatsHttpPort"); from != "" {
		im.try("http.listen", cmp.Or(im.value("prometheusStatsHttpAddress"), "0.0.0.0")+":"+cmp.Or(im.value("prometheusStatsHttpPort"), "8000"), from)
	}
}

func (im *importer) racks() {
	class := im.value("reppDnsResolverClass")
	script := im.value("networkTopologyScriptFileName")
	switch name := class[strings.LastIndexByte(class, '.')+1:]; {
	case name == "ZkBookieRackAffinityMapping" || name == "BookieRackAffinityMapping":
		im.try("placement.rack_source", "pulsar-zk", "reppDnsResolverClass")
	case script != "" && (name == "" || name == "ScriptBasedMapping"):
		im.try("placement.rack_source", "script:"+script, im.from("reppDnsResolverClass", "networkTopologyScriptFileName"))
	case name == "" || name == "ScriptBasedMapping":
		im.set("reppDnsResolverClass", ImportAutomatic, "no script is named")
		im.set("networkTopologyScriptFileName", ImportAutomatic, "no script is named")
	default:
		im.set("reppDnsResolverClass", ImportRefused, "racks come from Pulsar's ZooKeeper node, a script or a file: placement.rack_source")
	}
}

// render writes the settings that are not our defaults.
func (im *importer) render() []byte {
	var b strings.Builder
	b.WriteString("# Imported from a configuration of Apache BookKeeper. `bindery config explain KEY` tells more of each setting.\n")
	section := ""
	for _, s := range settings {
		v, ok := im.out.settings[s.Key]
		if !ok {
			continue
		}
		var c, def Config
		_ = setText(s.field(&def), s.Default, s.Auto)
		if err := setText(s.field(&c), v.text, s.Auto); err != nil || s.Format(&c) == s.Format(&def) {
			continue
		}
		if s.Section() != section {
			section = s.Section()
			fmt.Fprintf(&b, "\n[%s]\n", section)
		}
		text := s.Format(&c)
		if _, isSize := s.field(&c).(*Size); isSize {
			text = strconv.Quote(v.text) // to the byte
		}
		fmt.Fprintf(&b, "%-50s # %s\n", fmt.Sprintf("%-20s = %s", s.Name(), text), v.from)
	}
	for _, class := range []string{ImportRefused, ImportUnknown} {
		if im.out.Count(class) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n# %s:\n", map[string]string{ImportRefused: "Not imported, because it asks for what bindery does not do", ImportUnknown: "Not imported, because BookKeeper has no such key"}[class])
		for _, k := range im.out.Keys {
			if k.Class == class {
				fmt.Fprintf(&b, "#   %s=%s    %s\n", oneLine(k.Key), oneLine(k.Value), oneLine(k.Note))
			}
		}
	}
	return []byte(b.String())
}

// oneLine keeps a foreign text inside its comment.
func oneLine(s string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return strings.Join(strings.Fields(clean), " ")
}

var oldKeys = slices.Sorted(maps.Keys(importRules))

// hintsMax bounds how many unknown keys are compared with all known ones.
const hintsMax = 100

// nearestOld returns the known key of BookKeeper closest to a misspelt one, or "".
func nearestOld(key string) string {
	if len(key) > 80 {
		return ""
	}
	best, bestDistance := "", 1+len(key)/3
	for _, k := range oldKeys {
		if d := len(k) - len(key); d >= bestDistance || -d >= bestDistance {
			continue
		}
		if d := distance(strings.ToLower(key), strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}
