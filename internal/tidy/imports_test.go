package tidy

import (
	"go/ast"
	"slices"
	"strings"
)

// A direction says what the packages under a folder may import. The first row whose folder matches decides.
type direction struct {
	from   string   // folder; a trailing "/..." takes in what lies below
	module []string // folders of this module that may be imported, "/..." allowed; "*" is all of them
	other  []string // modules of others that may be imported; "*" is any in go.mod
	why    string
}

// directions is the drawing of the module. What belongs to the tests of a package is not bound by it, except by the
// rule that domains stay apart.
var directions = []direction{
	{"", nil, nil, "the root package is a comment: the map of the module"},
	{"cmd/...", []string{"*"}, []string{"*"}, "only a command puts the parts together"},
	{"examples/...", []string{"*"}, []string{"*"}, "an example is a user's program"},
	{"scripts/...", nil, nil, "helpers of the build must run before anything else is built"},
	{"lease", []string{"internal/held", "internal/asleep"}, nil,
		"the contract is what everything else imports; what it imports, every user carries"},
	{"lease/leasetest/...", []string{"lease", "lease/leasetest/..."},
		[]string{"github.com/anishathalye/porcupine", "pgregory.net/rapid"},
		"the suite judges services by the contract alone, so that none can be favoured"},
	{"lease/leaselocal/...", []string{"lease", "lease/leaselocal/...", "lease/internal/..."}, nil,
		"services see the contract, never each other"},
	{"lease/leaseremote/...", []string{"lease", "lease/leaseremote/...", "internal/wire", "internal/trywrite", "internal/asleep"}, nil,
		"services see the contract, never each other; only frames and how they are written are shared with the server"},
	{"lease/internal/engine/...", []string{"lease"}, nil,
		"the engine is a pure function of state, now and command; anything else it sees could make it impure"},
	{"lease/internal/journal/...", []string{"lease/internal/journal/..."}, []string{"golang.org/x/sys"},
		"the journal knows bytes, not leases"},
	{"rmap", []string{"internal/feed", "rmap/internal/hamt"}, nil,
		"the map sees the contract of stores, never one of them; what it imports, every user carries"},
	{"rmap/internal/hamt", nil, nil, "a data structure knows nobody"},
	{"rmap/rmaplocal", []string{"rmap", "internal/feed"}, nil, "stores see the contract, never each other"},
	{"rmap/rmapprom", []string{"rmap"}, []string{"github.com/prometheus/client_golang"},
		"metrics see what every map says of itself, whatever its store, and who wants none of them does not carry them"},
	{"rmap/rmaptest", []string{"rmap", "internal/feed", "internal/trial"},
		[]string{"github.com/anishathalye/porcupine", "pgregory.net/rapid"},
		"the suite judges stores by the contract alone, so that none can be favoured"},
	{"hotcache", []string{"hotcache/internal/core", "internal/feed"},
		[]string{"github.com/maypok86/otter/v2"},
		"the cache sees the contract of nodes, never one but the embedded; a library stores what memory keeps"},
	{"hotcache/internal/core", []string{"internal/feed"}, nil,
		"the core is a pure function of state, now and event, so that the cache and the simulator make the same decisions"},
	{"hotcache/sim", []string{"hotcache/internal/core", "internal/feed"}, nil,
		"the simulator drives the decisions of the core, and has what it needs to do so and nothing else"},
	{"hotcache/hotcachetest", []string{"hotcache", "hotcache/internal/core", "internal/feed"}, nil,
		"the suite judges nodes by the contract alone, so that none can be favoured"},
	{"hotcache/hotcacheredis", []string{"hotcache", "hotcache/internal/core", "internal/feed", "internal/redisfeed", "internal/redistext"},
		[]string{"github.com/redis/rueidis"}, "nodes see the contract and its types, never each other"},
	{"hotcache/outbox", []string{"hotcache"}, []string{"github.com/jackc/pgx/v5"},
		"it sees the contract of the cache, and who has no PostgreSQL does not carry its driver"},
	{"hotcache/outbox/outboxprom", []string{"hotcache/outbox"}, []string{"github.com/prometheus/client_golang"},
		"metrics see what every relay says of itself, and who wants none of them does not carry them"},
	{"hotcache/hotcacheprom", []string{"hotcache"}, []string{"github.com/prometheus/client_golang"},
		"metrics see what every cache says of itself, and who wants none of them does not carry them"},
	{"rmap/rmapredis", []string{"rmap", "internal/feed", "internal/redisfeed", "internal/redistext"}, []string{"github.com/redis/rueidis"},
		"stores see the contract, never each other"},
	{"internal/redisfeed", nil, []string{"github.com/redis/rueidis"},
		"it knows connections and channels; what is sent over them is the business of its users"},
	{"internal/redistext", nil, []string{"github.com/redis/rueidis"}, "both stores in Redis share it, so it must not pull in either"},
	{"internal/wire", []string{"lease"}, nil, "both ends of a connection share it, so it must not pull in either"},
	{"internal/trywrite", nil, nil, "both ends of a connection share it, so it must not pull in either"},
	{"internal/tally", []string{"lease"}, nil, "front ends share it, so it must not pull in any of them"},
	{"internal/tcpserve/...", []string{"lease", "internal/wire", "internal/trywrite"}, nil,
		"a front end sees the contract, never a service, so that any service can stand behind it"},
	{"internal/lmx/...", []string{"lease", "internal/wire", "internal/tally"}, nil,
		"a front end sees the contract, never a service, so that any service can stand behind it"},
	{"internal/httpserve/...", []string{"lease", "internal/wire", "internal/tally"}, []string{"github.com/prometheus/client_golang"},
		"a front end sees the contract, never a service, so that any service can stand behind it"},
	{"internal/asleep", nil, nil, "it knows the system's clocks and nobody; who has a deadline on them may ask it"},
	{"internal/held", nil, nil, "the one place with process-wide state stays small and knows nobody"},
	{"internal/feed", nil, nil, "a pure decision that two domains stand on: what it sees, both depend on"},
	{"internal/tidy", nil, nil, "tests only"},
	{"internal/proctest", nil, nil, "tests only; those of any package may use it, so it must pull in none"},
	{"internal/pgtest", []string{"internal/proctest"}, []string{"github.com/jackc/pgx/v5"},
		"tests only; those of any package may use it, so it must pull in none"},
	{"internal/redistest", []string{"internal/proctest"}, nil, "tests only; those of any package may use it, so it must pull in none"},
	{"internal/trial", nil, nil, "tests only; those of any package may use it, so it must pull in none"},
	{"clients/check/agent", []string{"lease", "lease/leaseremote"}, nil,
		"it plays a user's program, so it has what a user has"},
	{"stm/...", []string{"internal/held", "stm/..."}, nil, "an in-process type costs its users nothing but itself"},
	{"locked/...", []string{"internal/held", "locked/..."}, nil, "an in-process type costs its users nothing but itself"},
	{"actor/...", []string{"internal/held", "actor/..."}, nil, "an in-process type costs its users nothing but itself"},
}

// domains never import one another, in tests neither: each can be understood, and taken out, alone.
var domains = [][]string{{"stm", "locked", "actor"}, {"lease"}, {"rmap"}, {"hotcache"}}

// impure lists imports that the engine must not have besides those of other modules: each is a way to the world.
var impure = []string{"os", "os/exec", "os/signal", "net", "net/http", "syscall", "io/fs", "log", "crypto/rand"}

func checkImports(t *tree) []finding {
	var out []finding
	for _, s := range t.rootGo() {
		for _, spec := range s.file.Imports {
			out = append(out, t.domainImport(s, spec)...)
			if !s.test {
				out = append(out, t.directedImport(s, spec)...)
			}
		}
		if !s.test {
			out = append(out, t.hasRow(s)...)
		}
	}
	return out
}

// hasRow demands that somebody thought about a new package before it was born.
func (t *tree) hasRow(s *source) []finding {
	if directionOf(s.dir()) != nil {
		return nil
	}
	return []finding{t.at(s.file.Package, "import-row", "the package %q has no row in the table of import directions; "+
		"add one with its reason in internal/tidy/imports_test.go", s.dir())}
}

func (t *tree) directedImport(s *source, spec *ast.ImportSpec) []finding {
	row, p := directionOf(s.dir()), importPath(spec)
	if row == nil {
		return nil
	}
	if dir, ok := t.inModule(p); ok {
		if !matches(row.module, dir) {
			return []finding{t.at(spec.Pos(), "import-direction", "%s may not import %s: %s", name(s.dir()), dir, row.why)}
		}
		return nil
	}
	if isStandard(p) {
		if within(s.dir(), "lease/internal/engine") && slices.Contains(impure, p) {
			return []finding{t.at(spec.Pos(), "engine-pure", "the engine may not import %s: it must not reach the world, "+
				"so that a run can be repeated exactly", p)}
		}
		return nil
	}
	if !slices.ContainsFunc(row.other, func(m string) bool { return m == "*" || within(p, m) }) {
		return []finding{t.at(spec.Pos(), "import-foreign", "%s may not import %s: %s; add it to the row in "+
			"internal/tidy/imports_test.go when it is worth its price", name(s.dir()), p, row.why)}
	}
	return nil
}

func (t *tree) domainImport(s *source, spec *ast.ImportSpec) []finding {
	dir, ok := t.inModule(importPath(spec))
	if !ok {
		return nil
	}
	from, to := domainOf(s.dir()), domainOf(dir)
	if from < 0 || to < 0 || from == to {
		return nil
	}
	return []finding{t.at(spec.Pos(), "import-domain", "%s may not import %s: domains never import one another, so that "+
		"each can be understood alone", name(s.dir()), dir)}
}

// inModule turns an import path of this module into a folder.
func (t *tree) inModule(p string) (dir string, ok bool) {
	if p == t.module {
		return "", true
	}
	return strings.CutPrefix(p, t.module+"/")
}

func directionOf(dir string) *direction {
	for i := range directions {
		if matches([]string{directions[i].from}, dir) {
			return &directions[i]
		}
	}
	return nil
}

func domainOf(dir string) int {
	return slices.IndexFunc(domains, func(roots []string) bool {
		return slices.ContainsFunc(roots, func(r string) bool { return within(dir, r) })
	})
}

// matches says whether a folder is one of the patterns.
func matches(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if below, ok := strings.CutSuffix(p, "/..."); ok {
			return within(dir, below)
		}
		return p == "*" || p == dir
	})
}

// isStandard says whether an import path is of the standard library: its first element has no dot.
func isStandard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".")
}

func name(dir string) string {
	if dir == "" {
		return "the root package"
	}
	return dir
}
