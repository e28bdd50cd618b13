-- Pages and heads become columns of numbers; the two functions are those of the program.
UPDATE page SET body = page_of_schema_1(body);
UPDATE run SET head = head_of_schema_1(head);
