package check

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A project is empty but for the package of a client and the first program of its README, and outside of the repository:
// what the package lacks is nowhere else.
type project struct {
	dir     string
	client  string // the folder of the client, for tools that are installed there
	pkg     string // the package
	program string
	env     []string
	out     bytes.Buffer
	err     error // the first; nothing is done after it
}

// installs is how the users of each language take a package in and run a program with it, without a network.
var installs = map[string]func(*project){
	"typescript": (*project).npm,
	"python":     (*project).pip,
	"rust":       (*project).cargo,
	"java":       (*project).maven,
}

// packaged sees that a package has all that its users need.
func (l *language) packaged(t *testing.T, b *broker, pkg string) {
	t.Helper()
	program, err := l.program()
	if err != nil {
		t.Fatal(err)
	}
	client, err := filepath.Abs(l.folder())
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.NotFoundHandler()) // some programs tell somebody
	defer web.Close()
	p := &project{
		dir: t.TempDir(), client: client, pkg: pkg,
		program: strings.ReplaceAll(program, "http://localhost:8080", web.URL),
		env:     []string{"LATCHKEY_SERVER=" + b.addr},
	}
	began := time.Now()
	b.sees(t, samples[0], func() (string, error) {
		installs[l.name](p)
		return p.out.String(), p.err
	})
	t.Logf("%s: installed in an empty project in %.1f s: %s", l.name, time.Since(began).Seconds(), tail(p.out.String(), 1))
}

// program is the first piece of code in the README under the heading that promises one that works.
func (l *language) program() (string, error) {
	readme, err := os.ReadFile(filepath.Join(l.folder(), "README.md"))
	if err != nil {
		return "", err
	}
	m := firstProgram.FindSubmatch(readme)
	if m == nil {
		return "", fmt.Errorf("no code under “Ten lines that work” in the README of %s", l.name)
	}
	return string(m[1]), nil
}

var firstProgram = regexp.MustCompile("(?s)\n## Ten lines that work\n.*?\n```(?:ts|python|rust,no_run|java)\n(.*?)\n```\n")

// npm also looks at the types, which the program does not need to run.
func (p *project) npm() {
	modules := filepath.Join(p.client, "node_modules")
	p.write("package.json", `{"private":true,"type":"module"}`)
	p.write("main.ts", p.program)
	p.run("npm", "install", "--offline", "--no-audit", "--no-fund", "--silent", p.pkg)
	p.run("node", filepath.Join(modules, "typescript", "bin", "tsc"), "--strict", "--target", "es2022", "--module", "nodenext",
		"--types", "node", "--typeRoots", filepath.Join(modules, "@types"), "main.ts")
	p.run("node", "main.js")
}

// pip also looks at the types, as npm does.
func (p *project) pip() {
	tools := filepath.Join(p.client, ".venv", "bin", "python")
	python := filepath.Join(p.dir, "venv", "bin", "python")
	p.write("main.py", p.program)
	p.run(tools, "-m", "venv", "--without-pip", "venv")
	p.run(tools, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet", "--no-index", p.pkg)
	p.run(tools, "-m", "mypy", "--no-error-summary", "--check-untyped-defs", "--python-executable", python, "main.py")
	p.run(python, "-I", "main.py")
}

// cargo compiles what the package depends on once.
func (p *project) cargo() {
	name := strings.TrimSuffix(filepath.Base(p.pkg), ".crate")
	p.write("src/main.rs", p.program)
	p.write("Cargo.toml", fmt.Sprintf(cargoTOML, name))
	p.run("tar", "-xzf", p.pkg)
	p.move(filepath.Join(name, "Cargo.lock"), "Cargo.lock")
	p.env = append(p.env, "CARGO_TARGET_DIR="+filepath.Join(p.client, "target", "installed"))
	p.run("cargo", "run", "--quiet", "--offline")
	p.run("cargo", "clean", "--quiet", "--offline", "-p", "latchkey", "-p", "ten-lines") // the next folder is another one
}

const cargoTOML = `[package]
name = "ten-lines"
version = "0.0.0"
edition = "2021"

[dependencies]
latchkey = { path = %q }
tokio = { version = "1", features = ["macros", "rt-multi-thread"] }

[profile.dev]
debug = false
incremental = false
`

// maven has the plugins of the client's own repository, and installs the jar beside them, with the pom that is in it.
func (p *project) maven() {
	const installed = "local/io/github/latchkey-go/latchkey-client/0.1.0/latchkey-client-0.1.0"
	plugins := p.read(filepath.Join(p.client, "pom.xml"))
	p.write("pom.xml", fmt.Sprintf(mavenPOM, strings.Join(mavenPlugins.FindAllString(plugins, -1), "</plugin><plugin>")))
	imports, body := splitImports(p.program)
	p.write("src/main/java/Main.java",
		imports+"public class Main { public static void main(String[] args) throws Exception {\n"+body+"}}\n")
	p.link(filepath.Join(p.client, ".m2"), "local")
	p.write(installed+".jar", p.read(p.pkg))
	p.run("jar", "--extract", "--file", p.pkg, "META-INF/maven")
	p.move("META-INF/maven/io.github.latchkey-go/latchkey-client/pom.xml", installed+".pom")
	p.run("mvn", "-B", "-ntp", "-q", "-o", "-Dstyle.color=never", "-Dmaven.repo.local="+filepath.Join(p.dir, "local"), "compile")
	p.run("java", "-cp", "target/classes"+string(os.PathListSeparator)+installed+".jar", "Main")
}

// mavenPlugins matches those that a program needs too, in the versions that are installed.
var mavenPlugins = regexp.MustCompile(`<artifactId>maven-(?:resources|compiler)-plugin</artifactId>\s*<version>[^<]*</version>`)

const mavenPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>empty</groupId><artifactId>ten-lines</artifactId><version>0</version>
<properties>
<maven.compiler.release>17</maven.compiler.release><project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
</properties>
<dependencies><dependency>
<groupId>io.github.latchkey-go</groupId><artifactId>latchkey-client</artifactId><version>0.1.0</version>
</dependency></dependencies>
<build><plugins><plugin>%s</plugin></plugins></build>
</project>
`

// splitImports parts the lines that must stand above a class from those that must stand in a method.
func splitImports(program string) (imports, body string) {
	for line := range strings.Lines(program + "\n") {
		if strings.HasPrefix(line, "import ") {
			imports += line
		} else {
			body += line
		}
	}
	return imports, body
}

// link gives the project a repository that has the plugins of another one. Nothing of theirs is under io.
func (p *project) link(folder, repository string) {
	p.mkdir(repository)
	entries, err := os.ReadDir(folder)
	p.fail(err)
	for _, e := range entries {
		if e.Name() != "io" && p.err == nil {
			p.fail(os.Symlink(filepath.Join(folder, e.Name()), filepath.Join(p.dir, repository, e.Name())))
		}
	}
}

func (p *project) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *project) mkdir(name string) {
	if p.err == nil {
		p.fail(os.MkdirAll(filepath.Join(p.dir, name), 0o755))
	}
}

func (p *project) read(path string) string {
	text, err := os.ReadFile(path)
	p.fail(err)
	return string(text)
}

func (p *project) write(name, text string) {
	p.mkdir(filepath.Dir(name))
	if p.err == nil {
		p.fail(os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644))
	}
}

func (p *project) move(from, to string) {
	if p.err == nil {
		p.fail(os.Rename(filepath.Join(p.dir, from), filepath.Join(p.dir, to)))
	}
}

// run runs a program in the project. The first one of a language may have a lot to compile.
func (p *project) run(args ...string) {
	if p.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*partLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = p.dir
	cmd.Env = append(append(os.Environ(), "NO_COLOR=1", "TERM=dumb"), p.env...)
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		p.fail(fmt.Errorf("%s: %w", strings.Join(args, " "), err))
	}
}
