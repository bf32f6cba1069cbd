package io.github.latchkeygo;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON as frames have it: objects are maps, arrays lists, whole numbers that fit are Long, all
 * others Double. Reading is strict.
 */
final class Json {
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** Reads one line, which must be an object. */
  static Map<String, Object> object(byte[] line) {
    String text;
    try {
      text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(line)).toString();
    } catch (CharacterCodingException e) {
      throw LatchkeyException.breach("a line is not valid UTF-8");
    }
    Object value = new Json(text).document();
    if (!(value instanceof Map)) {
      throw LatchkeyException.breach("each line must be a JSON object, got " + excerpt(text));
    }
    return asObject(value);
  }

  /** Reads any value. */
  static Object parse(String text) {
    return new Json(text).document();
  }

  /** Only this class makes maps, and they have strings for keys. */
  @SuppressWarnings("unchecked")
  static Map<String, Object> asObject(Object value) {
    return (Map<String, Object>) value;
  }

  private static String excerpt(String text) {
    return quote(text.length() > 60 ? text.substring(0, 60) + "…" : text);
  }

  private Object document() {
    skip();
    Object value = value(0);
    skip();
    if (at < text.length()) throw bad();
    return value;
  }

  private LatchkeyException bad() {
    return LatchkeyException.breach(
        "not JSON; each line must be a JSON object, got " + excerpt(text));
  }

  private void skip() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) at++;
  }

  private char peek() {
    if (at >= text.length()) throw bad();
    return text.charAt(at);
  }

  private void expect(char c) {
    if (peek() != c) throw bad();
    at++;
  }

  private Object value(int depth) {
    if (depth > Limits.MAX_NESTING) throw LatchkeyException.breach("a line is nested too deeply");
    return switch (peek()) {
      case '{' -> members(depth);
      case '[' -> elements(depth);
      case '"' -> string();
      case 't' -> literal("true", Boolean.TRUE);
      case 'f' -> literal("false", Boolean.FALSE);
      case 'n' -> literal("null", null);
      default -> number();
    };
  }

  private Object literal(String word, Object value) {
    if (!text.startsWith(word, at)) throw bad();
    at += word.length();
    return value;
  }

  private Map<String, Object> members(int depth) {
    Map<String, Object> out = new LinkedHashMap<>();
    expect('{');
    skip();
    if (peek() == '}') {
      at++;
      return out;
    }
    while (true) {
      skip();
      String name = string();
      skip();
      expect(':');
      skip();
      out.put(name, value(depth + 1));
      skip();
      if (peek() == '}') {
        at++;
        return out;
      }
      expect(',');
    }
  }

  private List<Object> elements(int depth) {
    List<Object> out = new ArrayList<>();
    expect('[');
    skip();
    if (peek() == ']') {
      at++;
      return out;
    }
    while (true) {
      skip();
      out.add(value(depth + 1));
      skip();
      if (peek() == ']') {
        at++;
        return out;
      }
      expect(',');
    }
  }

  private String string() {
    expect('"');
    int start = at;
    StringBuilder out = null;
    while (true) {
      char c = peek();
      if (c < ' ') throw bad();
      if (c == '"') {
        String tail = text.substring(start, at++);
        return out == null ? tail : out.append(tail).toString();
      }
      at++;
      if (c != '\\') continue;
      if (out == null) out = new StringBuilder();
      out.append(text, start, at - 1).append(escaped());
      start = at;
    }
  }

  private char escaped() {
    char c = peek();
    at++;
    switch (c) {
      case '"', '\\', '/':
        return c;
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'u':
        break;
      default:
        throw bad();
    }
    int unit = 0;
    for (int i = 0; i < 4; i++) {
      int digit = Character.digit(peek(), 16);
      if (digit < 0 || text.charAt(at) > 'f') throw bad();
      unit = unit * 16 + digit;
      at++;
    }
    return (char) unit;
  }

  private Object number() {
    int start = at;
    if (peek() == '-') at++;
    int whole = at;
    digits();
    if (text.charAt(whole) == '0' && at > whole + 1) throw bad();
    boolean integer = true;
    if (at < text.length() && text.charAt(at) == '.') {
      integer = false;
      at++;
      digits();
    }
    if (at < text.length() && (text.charAt(at) | 0x20) == 'e') {
      integer = false;
      at++;
      if (peek() == '+' || peek() == '-') at++;
      digits();
    }
    String literal = text.substring(start, at);
    if (integer && literal.length() <= 18) return Long.valueOf(literal);
    return Double.valueOf(literal);
  }

  private void digits() {
    int start = at;
    while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') at++;
    if (at == start) throw bad();
  }

  // Writing.

  static String quote(String s) {
    StringBuilder out = new StringBuilder(s.length() + 2);
    quote(out, s);
    return out.toString();
  }

  /** Writes a value that is a string, number, boolean, null, list or map. */
  static void write(StringBuilder out, Object value) {
    if (value instanceof String s) {
      quote(out, s);
    } else if (value instanceof List<?> list) {
      char before = '[';
      for (Object element : list) {
        out.append(before);
        write(out, element);
        before = ',';
      }
      out.append(list.isEmpty() ? "[]" : "]");
    } else if (value instanceof Map<?, ?> map) {
      char before = '{';
      for (Map.Entry<?, ?> member : map.entrySet()) {
        quote(out.append(before), (String) member.getKey());
        write(out.append(':'), member.getValue());
        before = ',';
      }
      out.append(map.isEmpty() ? "{}" : "}");
    } else {
      out.append(value);
    }
  }

  private static void quote(StringBuilder out, String s) {
    out.append('"');
    for (int i = 0; i < s.length(); i++) {
      char c = s.charAt(i);
      switch (c) {
        case '"', '\\' -> out.append('\\').append(c);
        case '\n' -> out.append("\\n");
        case '\t' -> out.append("\\t");
        case '\r' -> out.append("\\r");
        case '\b' -> out.append("\\b");
        case '\f' -> out.append("\\f");
        default -> {
          if (c < ' ') out.append(String.format("\\u%04x", (int) c));
          else out.append(c);
        }
      }
    }
    out.append('"');
  }
}
