package result

// legends say how the cells of a chapter are named, by an example where that is shorter.
var legends = map[string]string{
	ChapterSync:      "dsync/4096, or dsync 4 KiB: one group of 4,096 bytes after the other, made durable with dsync",
	ChapterAlloc:     "append: the file grows; sparse: holes; fallocate: blocks reserved, never written; zeroed: zeroes written before; recycled: data written before",
	ChapterAlign:     "512: durable writes of 512 bytes, at offsets that are multiples of no more than that",
	ChapterJournals:  "4, or 4 journals: four at once, each writing groups to a file of its own",
	ChapterCoupling:  "idle: the other disk does nothing; coupled: it syncs one write after the other",
	ChapterBandwidth: "direct/4: writes past the page cache, 4 in flight; buffered/1: through it, one after the other",
	ChapterRead:      "random/4096/8, or 4 KiB x8: reads of 4,096 bytes at random places, 8 in flight",
	ChapterInterfere: "flush/same: beside flushes on the journal's own disk; other: on the other one; compaction/same/50: beside compaction at 50 % of its full speed",
	ChapterSustain:   "sustain: as fast as the disk takes it; recover: at the asked rate, afterwards",
	ChapterStalls:    "groups of 16 KiB at a fixed rate, half of what the disk can do or the asked one",
	ChapterMetadata:  "unlink: of a large file; dirsync: a directory made durable; trim: of 64 MiB",
	ChapterModel:     "1024/50: entries of 1,024 bytes at 50 % of full speed; 1024/100: at full speed",
	ChapterPipeline:  "50/4096/2: at 50 % load, writes of 4,096 bytes, 2 at once",
	ChapterEngines:   "64x1024: batches of 64 records of 1,024 bytes, each made durable as a whole",
	ChapterLive:      "live: writes of 4 KiB, each made durable, with a rest after each",
}

// Legend says how the cells of a chapter are named; "" where their names say all.
func Legend(chapter string) string { return legends[chapter] }
