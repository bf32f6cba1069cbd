package journal

// WithChecksum returns o with the checksum of frames replaced: a constant one
// lets a fuzzer past it, and is the defect of a journal that checks nothing.
func WithChecksum(o Options, sum func(salt uint32, p []byte) uint32) Options {
	o.sum = sum
	return o
}

// EncodeHeader builds a segment's header, for fuzzing and for planting versions.
func EncodeHeader(snapshot bool, number, first uint64, prevEnd int64, salt uint32) []byte {
	h := fileHeader{kind: kindSegment, number: number, first: first, prevEnd: prevEnd, salt: salt}
	if snapshot {
		h.kind = kindSnapshot
	}
	return h.encode()
}

// HeaderSize is where frames begin.
const HeaderSize = headerSize

// EncodeFrame builds a frame of records.
func EncodeFrame(seq, synced uint64, salt uint32, recs ...[]byte) []byte {
	var b batch
	for _, rec := range recs {
		b.add(rec, 1<<30)
	}
	b.seal()
	return b.stamp(b.frames[0], kindData, seq, synced, salt, crc32c)
}
